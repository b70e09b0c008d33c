-- Writes down what an operator did to a flow, and why, in the commit that does it.
CREATE OR REPLACE FUNCTION semel.audit_flow(p_execution uuid, p_action text, p_actor text, p_reason text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM semel.require_durable_commit();
    INSERT INTO semel.audit (actor, action, tenant, operation, key, execution, reason)
    SELECT p_actor, p_action, f.tenant, f.operation, f.key, p_execution, p_reason
    FROM semel.flows f WHERE f.execution = p_execution;
END
$$;
