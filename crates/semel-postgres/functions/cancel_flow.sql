-- Asks for a flow to be undone, and writes down who wants it and why in the same commit. After that a worker that is at
-- it begins nothing new: see semel.require_wanted. A flow that nobody is at is due from now on. `standing` is where it
-- stood, null if there is no such flow; `refusal` says why nothing was changed. With p_dry_run nothing is changed at
-- all. p_epoch is that of semel.lock_flow.
CREATE OR REPLACE FUNCTION semel.cancel_flow(
    p_execution uuid, p_actor text, p_reason text, p_dry_run boolean DEFAULT false,
    p_epoch bigint DEFAULT NULL,
    OUT standing text, OUT refusal text)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    SELECT l.standing, l.refusal INTO standing, refusal FROM semel.lock_flow(p_execution, p_epoch) l;
    IF refusal IS NOT NULL THEN
        RETURN;
    END IF;
    IF standing IN ('completed', 'failed') THEN
        refusal := 'it has ended; its reply is stored';
    ELSIF standing = 'held' THEN
        refusal := 'it is held: resolve the step in doubt, or retry it, then cancel it';
    END IF;
    IF standing IS NULL OR refusal IS NOT NULL OR p_dry_run THEN
        RETURN;
    END IF;
    UPDATE semel.flows f SET cancelled = true WHERE f.execution = p_execution;
    IF standing = 'running' THEN
        -- As it was, in a new version: a worker above READ COMMITTED that waits for the row with an older snapshot,
        -- which does not show that the flow is cancelled, has to begin its transaction again.
        UPDATE semel.keys k SET epoch = k.epoch
        FROM semel.flows f
        WHERE f.execution = p_execution AND k.tenant = f.tenant AND k.operation = f.operation AND k.key = f.key
          AND k.execution = p_execution;
    ELSE
        PERFORM semel.release_flow(p_execution);
    END IF;
    PERFORM semel.audit_flow(p_execution, 'flow_cancelled', p_actor, p_reason);
END
$$;
