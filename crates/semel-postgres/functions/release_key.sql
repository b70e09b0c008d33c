-- Lets the held events of a key go, up to a seq: they were published. The key is free when none is left; otherwise the
-- next one is to be tried at once.
CREATE OR REPLACE FUNCTION semel.release_key(p_ordering_key text, p_upto_seq bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- An operator who skips an event locks this row too.
    PERFORM FROM semel.held_keys h WHERE h.ordering_key = p_ordering_key FOR UPDATE;
    DELETE FROM semel.held_events e WHERE e.ordering_key = p_ordering_key AND e.seq <= p_upto_seq;
    DELETE FROM semel.held_keys h
    WHERE h.ordering_key = p_ordering_key
      AND NOT EXISTS (SELECT FROM semel.held_events e WHERE e.ordering_key = p_ordering_key);
    UPDATE semel.held_keys h SET state = 'retrying', attempts = 0, retry_at = clock_timestamp()
    WHERE h.ordering_key = p_ordering_key;
END
$$;
