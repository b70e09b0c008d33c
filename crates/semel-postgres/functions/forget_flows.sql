-- Deletes flows with all that is recorded of them. Whoever deletes or replaces the row of a key calls it in the same
-- transaction, once that row is locked, so that no worker can be writing.
CREATE OR REPLACE FUNCTION semel.forget_flows(p_executions uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM semel.flow_steps s WHERE s.execution = ANY (p_executions);
    DELETE FROM semel.flows f WHERE f.execution = ANY (p_executions);
END
$$;
