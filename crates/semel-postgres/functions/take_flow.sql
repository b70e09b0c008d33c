-- Gives a flow whose lease has ended to another worker, and returns its execution and its new epoch: the worker before
-- cannot write any more (I7). The caller has locked the row of the key and has seen that the lease has ended.
--
-- With p_resume false, a flow that its worker left in the middle is held as 'unknown' instead, and the epoch is null.
-- Nobody left a flow that pauses, one that an operator let go on, or a staged job that nobody has begun. What is held
-- is kept until somebody has found out what happened. A staged job begins with its first worker: however long it
-- waited, its life is before it.
--
-- A worker that left it in the middle counts as a failure: the flow may be what it died of.
CREATE OR REPLACE FUNCTION semel.take_flow(
    p_tenant text, p_operation text, p_key text, p_holder text, p_lease interval, p_retain interval, p_resume boolean,
    OUT execution uuid, OUT epoch bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_now  timestamptz := clock_timestamp();
    v_flow record;
BEGIN
    -- A later statement than the one that locked the key, so that it sees what the last worker committed.
    SELECT k.execution, k.holder, k.holder = 'staged' AS is_new_job, f.failures + 1 AS failures,
           NOT (f.paused OR f.released OR k.holder = 'staged') AS was_left
    INTO STRICT v_flow
    FROM semel.keys k JOIN semel.flows f ON f.execution = k.execution
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
    execution := v_flow.execution;
    IF v_flow.was_left AND NOT p_resume THEN
        UPDATE semel.keys k
        SET state = 'unknown', expires_at = v_now + interval '100 years'
        WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
        UPDATE semel.flows f
        SET cause = format('abandoned by its worker (%s); the policy of this flow is to hold', v_flow.holder)
        WHERE f.execution = v_flow.execution;
        RETURN;
    END IF;
    UPDATE semel.keys k
    SET epoch = k.epoch + 1, holder = p_holder, lease_expires_at = v_now + p_lease, expires_at = v_now + p_retain
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
    RETURNING k.epoch INTO epoch;
    IF v_flow.was_left THEN
        UPDATE semel.flows f
        SET failures = v_flow.failures, cause = format('its worker (%s) was lost', v_flow.holder)
        WHERE f.execution = v_flow.execution;
    ELSE
        UPDATE semel.flows f
        SET paused = false, released = false,
            begun_at = CASE WHEN v_flow.is_new_job THEN v_now ELSE f.begun_at END
        WHERE f.execution = v_flow.execution;
    END IF;
END
$$;
