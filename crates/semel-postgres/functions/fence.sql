-- Lets a transaction of leased work go on only if its worker still holds the lease (I7). The row lock is kept to the
-- commit, so that nobody can take over between this check and the write it guards.
CREATE OR REPLACE FUNCTION semel.fence(p_tenant text, p_operation text, p_key text, p_epoch bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM semel.keys k
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
      AND k.epoch = p_epoch AND k.state = 'in_progress'
    FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease was lost: epoch % is over', p_epoch USING ERRCODE = 'SM001';
    END IF;
    RETURN p_epoch;
END
$$;
