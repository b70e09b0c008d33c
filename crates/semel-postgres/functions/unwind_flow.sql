-- Records that a flow is undone from now on, and why, before anything of it is. Once recorded it stays, and so does the
-- first reason. SM001 if the lease was lost (I7).
CREATE OR REPLACE FUNCTION semel.unwind_flow(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_epoch bigint,
    p_failure bytea, p_sealed_by text) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM semel.require_durable_commit();
    PERFORM semel.fence(p_tenant, p_operation, p_key, p_execution, p_epoch, NULL);
    UPDATE semel.flows f SET unwinding = p_failure, unwinding_sealed_by = p_sealed_by, failures = 0
    WHERE f.execution = p_execution AND f.unwinding IS NULL;
    RETURN p_epoch;
END
$$;
