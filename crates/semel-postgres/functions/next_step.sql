-- Draws the ordinal of the next step of a flow, whose key the caller has locked. The step's own row refuses one past
-- the 1,000th. A flow that gets on has no failures in a row.
CREATE OR REPLACE FUNCTION semel.next_step(p_execution uuid) RETURNS smallint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_ordinal smallint;
BEGIN
    UPDATE semel.flows f SET steps = f.steps + 1, failures = 0 WHERE f.execution = p_execution
    RETURNING f.steps - 1 INTO v_ordinal;
    RETURN v_ordinal;
END
$$;
