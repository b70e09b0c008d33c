-- Lets a transaction of leased work go on only if its worker still holds the lease (I7), and returns the epoch. The row
-- lock is kept to the commit, so that nobody can take over between this check and the write it guards. The execution is
-- compared too: a key that was evicted and leased anew starts again at epoch 1.
--
-- p_point is where the worker believes the work to stand. If it stands elsewhere, a step was committed whose answer the
-- worker never saw: SM005, with the recovery point as the detail.
CREATE OR REPLACE FUNCTION semel.fence(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_epoch bigint, p_point text) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_point text;
BEGIN
    SELECT k.recovery_point INTO v_point FROM semel.keys k
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
      AND k.execution = p_execution AND k.epoch = p_epoch AND k.state = 'in_progress'
    FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease was lost: epoch % is over', p_epoch USING ERRCODE = 'SM001';
    END IF;
    IF v_point IS DISTINCT FROM p_point THEN
        RAISE EXCEPTION 'the work stands at another recovery point'
            USING ERRCODE = 'SM005', DETAIL = coalesce(v_point, '');
    END IF;
    RETURN p_epoch;
END
$$;
