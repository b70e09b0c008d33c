-- Records the end of a call or a pause, in a transaction of its own. Asked again for what was settled the same way, it
-- changes nothing: the first result stays. Settled otherwise it is refused. SM001 if the lease was lost (I7).
--
-- A call that was never counted, because a look-up or the flow's undoing settled it first, is recorded without an
-- intent.
CREATE OR REPLACE FUNCTION semel.settle_step(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_epoch bigint,
    p_step text, p_kind text, p_state text, p_result bytea, p_sealed_by text) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now  timestamptz := clock_timestamp();
    v_step record;
BEGIN
    PERFORM semel.require_durable_commit();
    PERFORM semel.fence(p_tenant, p_operation, p_key, p_execution, p_epoch, NULL);
    SELECT s.kind::text AS kind, s.state::text AS state INTO v_step FROM semel.flow_steps s
    WHERE s.execution = p_execution AND s.step = p_step;
    IF NOT FOUND THEN
        INSERT INTO semel.flow_steps (execution, step, ordinal, kind, state, result, sealed_by, attempts, recorded_at,
                                      settled_at)
        VALUES (p_execution, p_step, semel.next_step(p_execution), p_kind,
                p_state, p_result, p_sealed_by, CASE p_kind WHEN 'call' THEN '' END, v_now, v_now);
        RETURN p_epoch;
    END IF;
    IF v_step.kind <> p_kind THEN
        RAISE EXCEPTION 'step % is recorded as a %, not as a %', p_step, v_step.kind, p_kind
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF v_step.state = 'pending' THEN
        UPDATE semel.flow_steps s
        SET state = p_state, result = p_result, sealed_by = p_sealed_by, settled_at = v_now
        WHERE s.execution = p_execution AND s.step = p_step;
        UPDATE semel.flows f SET failures = 0 WHERE f.execution = p_execution AND f.failures > 0;
    ELSIF v_step.state <> p_state THEN
        RAISE EXCEPTION 'step % is % already', p_step, v_step.state
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN p_epoch;
END
$$;
