-- Has parked keys tried again: one, or all if it is null. Writes down who wants it and why in the same commit. Returns
-- how many keys there were, or null if the one asked for is not held. With p_dry_run nothing is changed.
CREATE OR REPLACE FUNCTION semel.redrive(
    p_ordering_key text, p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_keys text[];
BEGIN
    IF p_ordering_key IS NOT NULL THEN
        PERFORM FROM semel.held_keys h WHERE h.ordering_key = p_ordering_key FOR UPDATE;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    v_keys := ARRAY(SELECT h.ordering_key FROM semel.held_keys h
                    WHERE h.state = 'parked' AND (p_ordering_key IS NULL OR h.ordering_key = p_ordering_key)
                    ORDER BY h.ordering_key
                    FOR UPDATE);
    IF NOT p_dry_run THEN
        UPDATE semel.held_keys h SET state = 'redriving' WHERE h.ordering_key = ANY (v_keys);
        INSERT INTO semel.audit (actor, action, ordering_key, reason)
        SELECT p_actor, 'outbox redrive', k, p_reason FROM unnest(v_keys) AS k;
    END IF;
    RETURN cardinality(v_keys);
END
$$;
