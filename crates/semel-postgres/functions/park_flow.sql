-- Ends a worker's lease, so that the flow is taken over in p_pause, not before. With a cause it counts as one more
-- failure in a row; without one the count starts again. Until somebody takes it over, asking again changes nothing.
-- SM001 if the lease was lost (I7).
--
-- A flow that would merely pause is due at once if an operator has asked for it to be undone: its worker has not seen
-- that yet, and the next one will.
CREATE OR REPLACE FUNCTION semel.park_flow(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_epoch bigint,
    p_pause interval, p_cause text) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_due boolean;
BEGIN
    PERFORM semel.require_durable_commit();
    PERFORM semel.fence(p_tenant, p_operation, p_key, p_execution, p_epoch, NULL);
    UPDATE semel.flows f
    SET paused = true, cause = left(p_cause, 1000), failures = CASE WHEN p_cause IS NULL THEN 0 ELSE f.failures + 1 END
    WHERE f.execution = p_execution AND NOT f.paused
    RETURNING f.cancelled AND f.unwinding IS NULL AND p_cause IS NULL INTO v_due;
    IF FOUND THEN
        UPDATE semel.keys k
        SET lease_expires_at = clock_timestamp() + CASE WHEN v_due THEN interval '0' ELSE p_pause END
        WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
    END IF;
    RETURN p_epoch;
END
$$;
