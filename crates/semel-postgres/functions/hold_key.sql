-- Writes the row of a held key anew; since when it is held stays. A key that is not held is held from now on, but only
-- if p_new says so: the last of its events may have been skipped while it was being tried.
CREATE OR REPLACE FUNCTION semel.hold_key(
    p_lane smallint, p_ordering_key text, p_state text, p_attempts integer, p_retry_at timestamptz, p_error text,
    p_new boolean) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE semel.held_keys h
    SET state = p_state, attempts = p_attempts, retry_at = p_retry_at, error = left(p_error, 1000)
    WHERE h.ordering_key = p_ordering_key;
    IF NOT FOUND AND p_new THEN
        INSERT INTO semel.held_keys (ordering_key, lane, state, attempts, retry_at, error)
        VALUES (p_ordering_key, p_lane, p_state, p_attempts, p_retry_at, left(p_error, 1000));
    END IF;
END
$$;
