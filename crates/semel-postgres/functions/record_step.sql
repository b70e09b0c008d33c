-- Records the end of a step in the fenced transaction that did it, so that both are durable or neither is (I1). A step
-- that is recorded already is SM004: roll back, its effect is committed (I2). SM001 if the lease was lost (I7), SM014
-- if the flow is to be undone.
--
-- The lease runs on from now if half of it is over: while the step held the row, nobody could renew it.
CREATE OR REPLACE FUNCTION semel.record_step(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_epoch bigint,
    p_step text, p_kind text, p_state text, p_result bytea, p_sealed_by text,
    p_lease interval, p_retain interval) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now  timestamptz := clock_timestamp();
    v_ends timestamptz;
BEGIN
    PERFORM semel.require_durable_commit();
    SELECT k.lease_expires_at INTO v_ends FROM semel.keys k
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
      AND k.execution = p_execution AND k.epoch = p_epoch AND k.state = 'in_progress'
    FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease was lost: epoch % is over', p_epoch USING ERRCODE = 'SM001';
    END IF;
    PERFORM semel.require_wanted(p_execution);
    IF v_ends < v_now + p_lease / 2 THEN
        UPDATE semel.keys k
        SET lease_expires_at = v_now + p_lease, expires_at = v_now + p_retain
        WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
    END IF;
    INSERT INTO semel.flow_steps (execution, step, ordinal, kind, state, result, sealed_by, recorded_at, settled_at)
    VALUES (p_execution, p_step, semel.next_step(p_execution), p_kind,
            p_state, p_result, p_sealed_by, v_now, v_now)
    ON CONFLICT ON CONSTRAINT flow_steps_pkey DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'step % is recorded already', p_step USING ERRCODE = 'SM004',
            HINT = 'Roll back, and read what is recorded.';
    END IF;
    RETURN p_epoch;
END
$$;
