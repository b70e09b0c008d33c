-- Notes that a redriven letter failed again: it is dead, with this cause and one attempt more. False, and nothing is
-- done, if it is not redriven any more. It waits for whoever has taken the letter meanwhile.
CREATE OR REPLACE FUNCTION semel.bury_letter(p_id bigint, p_cause text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE semel.dead_letters d
    SET state = 'dead', cause = p_cause, changed_at = clock_timestamp(),
        attempts = d.attempts + CASE WHEN d.attempts < 2147483647 THEN 1 ELSE 0 END
    WHERE d.id = p_id AND d.state = 'redriven';
    RETURN FOUND;
END
$$;
