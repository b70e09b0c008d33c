-- What recording a step needs besides its row: see semel.fencing. SM014 if the flow is to be undone. A step that was
-- recorded before is SM004: roll back, its effect is committed (I2).
CREATE OR REPLACE FUNCTION semel.recording(p_execution uuid, p_is_new boolean) RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM semel.require_wanted(p_execution);
    IF NOT p_is_new THEN
        RAISE EXCEPTION 'the step is recorded already' USING ERRCODE = 'SM004',
            HINT = 'Roll back, and read what is recorded.';
    END IF;
    RETURN semel.fencing(p_execution);
END
$$;
