-- Removes a key by hand, so that its next request runs as new, and the flow that ran under it, if one did; writes down
-- who did it and why in the same commit. Returns 'evicted' or 'not_found', or changes nothing: 'in_flight' while it
-- runs, or while it is a flow that has done something and has not ended; 'changed' if it is another run than the
-- operator looked at. With p_dry_run nothing is changed at all.
CREATE OR REPLACE FUNCTION semel.evict(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_actor text, p_reason text,
    p_dry_run boolean DEFAULT false)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_found semel.keys%ROWTYPE;
BEGIN
    IF NOT pg_try_advisory_xact_lock(semel.lock_id(p_tenant, p_operation, p_key)) THEN
        RETURN 'in_flight';
    END IF;
    SELECT * INTO v_found FROM semel.keys k
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        -- Passed over because it is locked, or not there at all.
        PERFORM FROM semel.keys k WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
        RETURN CASE WHEN FOUND THEN 'in_flight' ELSE 'not_found' END;
    END IF;
    IF v_found.execution IS DISTINCT FROM p_execution THEN
        RETURN 'changed';
    END IF;
    IF v_found.state = 'in_progress' AND v_found.lease_expires_at > clock_timestamp() THEN
        RETURN 'in_flight';
    END IF;
    -- Its next run would do again what its steps have done.
    IF v_found.state IN ('in_progress', 'unknown')
        AND EXISTS (SELECT FROM semel.flow_steps s WHERE s.execution = v_found.execution) THEN
        RETURN 'in_flight';
    END IF;
    IF NOT p_dry_run THEN
        DELETE FROM semel.keys k WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
        IF v_found.flow IS NOT NULL THEN
            PERFORM semel.forget_flows(ARRAY[v_found.execution]);
        END IF;
        INSERT INTO semel.audit (actor, action, tenant, operation, key, execution, reason)
        VALUES (p_actor, 'keys evict', p_tenant, p_operation, p_key, v_found.execution, p_reason);
    END IF;
    RETURN 'evicted';
END
$$;
