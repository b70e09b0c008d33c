-- Holds a flow for a person: the call is 'unknown' and so is the key, which is kept until somebody resolves it. Asking
-- again changes nothing. SM001 if the lease was lost (I7).
--
-- A call that failed is in doubt, too, if its failure holds the flow: a person may know better. So is one that was
-- never recorded, as in a restored database. The undoing of a commit is no call: nothing is in doubt then, and the flow
-- can be let go on.
CREATE OR REPLACE FUNCTION semel.hold_flow(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_epoch bigint,
    p_step text, p_why text) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now   timestamptz := clock_timestamp();
    v_state text;
BEGIN
    PERFORM semel.require_durable_commit();
    SELECT k.state INTO v_state FROM semel.keys k
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
      AND k.execution = p_execution AND k.epoch = p_epoch
    FOR UPDATE;
    IF v_state = 'unknown' THEN
        -- Held for this very reason, or because this worker was taken for gone.
        PERFORM FROM semel.flows f WHERE f.execution = p_execution AND f.cause = left(p_why, 1000);
        IF FOUND THEN
            RETURN p_epoch;
        END IF;
    END IF;
    IF v_state IS DISTINCT FROM 'in_progress' THEN
        RAISE EXCEPTION 'the lease was lost: epoch % is over', p_epoch USING ERRCODE = 'SM001';
    END IF;
    UPDATE semel.keys k
    SET state = 'unknown', expires_at = v_now + interval '100 years'
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
    UPDATE semel.flows f SET cause = left(p_why, 1000) WHERE f.execution = p_execution;
    UPDATE semel.flow_steps s SET state = 'unknown', result = NULL, sealed_by = NULL, settled_at = NULL
    WHERE s.execution = p_execution AND s.step = p_step AND s.kind = 'call' AND s.state <> 'done';
    IF FOUND THEN
        RETURN p_epoch;
    END IF;
    PERFORM FROM semel.flow_steps s
    WHERE s.execution = p_execution AND (s.step = p_step OR (s.kind = 'commit' AND p_step = '~undo.' || s.step));
    IF NOT FOUND THEN
        INSERT INTO semel.flow_steps (execution, step, ordinal, kind, state, attempts, recorded_at)
        VALUES (p_execution, p_step, semel.next_step(p_execution), 'call',
                'unknown', '', v_now);
    END IF;
    RETURN p_epoch;
END
$$;
