-- Records what attempt p_number of a call came to, as one letter, and the error for people to read. In a transaction of
-- its own; asked again it writes the same. SM001 if the lease was lost (I7).
CREATE OR REPLACE FUNCTION semel.end_attempt(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_epoch bigint,
    p_step text, p_number integer, p_letter text, p_cause text) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM semel.require_durable_commit();
    PERFORM semel.fence(p_tenant, p_operation, p_key, p_execution, p_epoch, NULL);
    UPDATE semel.flow_steps s
    SET attempts = overlay(s.attempts PLACING p_letter FROM p_number FOR 1), cause = left(p_cause, 1000)
    WHERE s.execution = p_execution AND s.step = p_step AND s.kind = 'call' AND s.state = 'pending'
      AND length(s.attempts) >= p_number;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt % of step % was not counted, or the call is settled', p_number, p_step
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN p_epoch;
END
$$;
