-- Fails with SM014 if an operator has asked for the flow to be undone and nobody has recorded yet that it is: nothing
-- new of it begins. The caller has locked the key, as semel.cancel_flow does, so that one of them comes first. Work
-- that is no flow is always wanted.
CREATE OR REPLACE FUNCTION semel.require_wanted(p_execution uuid) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF EXISTS (SELECT FROM semel.flows f
               WHERE f.execution = p_execution AND f.cancelled AND f.unwinding IS NULL) THEN
        RAISE EXCEPTION 'flow % is to be undone', p_execution USING ERRCODE = 'SM014',
            HINT = 'Roll back, read the flow again, and undo it.';
    END IF;
END
$$;
