-- Says what became of a call that a flow is held for, and writes down who says so and why in the same commit. When no
-- call is in doubt any more, the flow goes on.
--
-- p_found 'happened'        the call is done, and p_result is its result.
-- p_found 'did_not_happen'  it is sent anew, under the key that is stored.
-- p_found 'failed'          it has failed, and p_result says why.
--
-- `standing` is where the flow stood, null if there is no such flow; `refusal` says why nothing was changed. With
-- p_dry_run nothing is changed at all. p_epoch is that of semel.lock_flow.
CREATE OR REPLACE FUNCTION semel.resolve_flow(
    p_execution uuid, p_step text, p_found text, p_result bytea, p_actor text, p_reason text,
    p_dry_run boolean DEFAULT false, p_epoch bigint DEFAULT NULL,
    OUT standing text, OUT refusal text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_doubtful text;
    v_in_doubt boolean;
BEGIN
    IF (p_found IN ('happened', 'failed')) IS DISTINCT FROM (p_result IS NOT NULL)
        OR p_found NOT IN ('happened', 'did_not_happen', 'failed') THEN
        RAISE EXCEPTION 'a call happened or failed with a result, or did_not_happen without one'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT l.standing, l.refusal INTO standing, refusal FROM semel.lock_flow(p_execution, p_epoch) l;
    SELECT string_agg(s.step, ', ' ORDER BY s.ordinal), bool_or(s.step = p_step) INTO v_doubtful, v_in_doubt
    FROM semel.flow_steps s
    WHERE s.execution = p_execution AND s.state = 'unknown';
    IF refusal IS NOT NULL THEN
        RETURN;
    END IF;
    IF standing IN ('completed', 'failed') THEN
        refusal := 'it has ended; its reply is stored';
    ELSIF standing <> 'held' THEN
        refusal := 'it is not held: nobody has to find out anything';
    ELSIF v_doubtful IS NULL THEN
        refusal := 'no call of it is in doubt: retry it';
    ELSIF NOT v_in_doubt THEN
        refusal := format('nobody has to find out about step %s, but about %s', p_step, v_doubtful);
    END IF;
    IF standing IS NULL OR refusal IS NOT NULL OR p_dry_run THEN
        RETURN;
    END IF;
    IF p_found = 'did_not_happen' THEN
        UPDATE semel.flow_steps s SET state = 'pending', attempts = '', sent_at = NULL, attempted_at = NULL,
                                      resolved_in = semel.incarnation_hash()
        WHERE s.execution = p_execution AND s.step = p_step;
    ELSE
        UPDATE semel.flow_steps s
        SET state = CASE p_found WHEN 'failed' THEN 'failed' ELSE 'done' END, result = p_result,
            settled_at = clock_timestamp()
        WHERE s.execution = p_execution AND s.step = p_step;
    END IF;
    IF NOT EXISTS (SELECT FROM semel.flow_steps s WHERE s.execution = p_execution AND s.state = 'unknown') THEN
        PERFORM semel.release_flow(p_execution);
    END IF;
    PERFORM semel.audit_flow(p_execution, 'flow_resolved', p_actor, p_reason);
END
$$;
