-- Takes one event of a parked key out for good and writes down who did it and why in the same commit. If it was the
-- key's last, the key is free; otherwise it stays parked. Null if there is no such event among the held ones, false if
-- its key is not parked: a relay may be publishing it at this very moment. With p_dry_run nothing is changed.
CREATE OR REPLACE FUNCTION semel.skip_event(
    p_event uuid, p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_key   text;
    v_state text;
BEGIN
    SELECT e.ordering_key INTO v_key FROM semel.held_events e WHERE e.id = p_event;
    -- The key first, as whoever publishes its events does.
    SELECT h.state INTO v_state FROM semel.held_keys h WHERE h.ordering_key = v_key FOR UPDATE;
    PERFORM FROM semel.held_events e WHERE e.id = p_event AND e.ordering_key = v_key;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF v_state <> 'parked' THEN
        RETURN false;
    END IF;
    IF NOT p_dry_run THEN
        DELETE FROM semel.held_events e WHERE e.ordering_key = v_key AND e.id = p_event;
        DELETE FROM semel.held_keys h
        WHERE h.ordering_key = v_key
          AND NOT EXISTS (SELECT FROM semel.held_events e WHERE e.ordering_key = v_key);
        INSERT INTO semel.audit (actor, action, event, ordering_key, reason)
        VALUES (p_actor, 'outbox skip', p_event, v_key, p_reason);
    END IF;
    RETURN true;
END
$$;
