-- Lets a flow go on now, and writes down who wants it and why in the same commit: one that pauses, that failed and
-- waits, that nobody takes, or that is held and in which no call is in doubt. `standing` is where it stood, null if
-- there is no such flow; `refusal` says why nothing was changed. With p_dry_run nothing is changed at all. p_epoch is
-- that of semel.lock_flow.
CREATE OR REPLACE FUNCTION semel.retry_flow(
    p_execution uuid, p_actor text, p_reason text, p_dry_run boolean DEFAULT false,
    p_epoch bigint DEFAULT NULL,
    OUT standing text, OUT refusal text)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    SELECT l.standing, l.refusal INTO standing, refusal FROM semel.lock_flow(p_execution, p_epoch) l;
    IF refusal IS NOT NULL THEN
        RETURN;
    END IF;
    IF standing = 'running' THEN
        refusal := 'a worker is at it; if that one is gone, the flow is taken over when its lease ends';
    ELSIF standing IN ('completed', 'failed') THEN
        refusal := 'it has ended; its reply is stored';
    ELSIF standing = 'held' THEN
        SELECT format('nobody knows what became of step %s: resolve step %s', s.step, s.step) INTO refusal
        FROM semel.flow_steps s
        WHERE s.execution = p_execution AND s.state = 'unknown'
        ORDER BY s.ordinal
        LIMIT 1;
    END IF;
    IF standing IS NULL OR refusal IS NOT NULL OR p_dry_run THEN
        RETURN;
    END IF;
    PERFORM semel.release_flow(p_execution);
    PERFORM semel.audit_flow(p_execution, 'flow_retried', p_actor, p_reason);
END
$$;
