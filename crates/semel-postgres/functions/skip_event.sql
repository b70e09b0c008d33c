-- Takes one held event out for good and writes down who did it and why in the same commit. If it was the key's last,
-- the key is free; if it was the first, the next one is tried with no attempts. Says whether there was such an event.
-- With p_dry_run nothing is changed.
CREATE OR REPLACE FUNCTION semel.skip_event(
    p_event uuid, p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_key   text;
    v_seq   bigint;
    v_first bigint;
BEGIN
    SELECT e.ordering_key INTO v_key FROM semel.held_events e WHERE e.id = p_event;
    -- The key first, as whoever publishes its events does.
    PERFORM FROM semel.held_keys h WHERE h.ordering_key = v_key FOR UPDATE;
    SELECT e.seq INTO v_seq FROM semel.held_events e WHERE e.id = p_event AND e.ordering_key = v_key;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF NOT p_dry_run THEN
        SELECT min(e.seq) INTO v_first FROM semel.held_events e WHERE e.ordering_key = v_key;
        DELETE FROM semel.held_events e WHERE e.ordering_key = v_key AND e.seq = v_seq;
        DELETE FROM semel.held_keys h
        WHERE h.ordering_key = v_key
          AND NOT EXISTS (SELECT FROM semel.held_events e WHERE e.ordering_key = v_key);
        UPDATE semel.held_keys h SET attempts = 0, retry_at = clock_timestamp()
        WHERE h.ordering_key = v_key AND v_seq = v_first;
        INSERT INTO semel.audit (actor, action, event, ordering_key, reason)
        VALUES (p_actor, 'outbox skip', p_event, v_key, p_reason);
    END IF;
    RETURN true;
END
$$;
