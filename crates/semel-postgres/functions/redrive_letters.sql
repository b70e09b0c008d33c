-- Has dead letters tried again: one, those of one consumer, or all if both are null. Writes down who wants it and why
-- in the same commit, a row for each, and returns how many there were. Only those in the state 'dead' count. With
-- p_dry_run nothing is changed.
CREATE OR REPLACE FUNCTION semel.redrive_letters(
    p_consumer text, p_id bigint, p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_letters bigint[];
BEGIN
    v_letters := ARRAY(
        SELECT d.id FROM semel.dead_letters d
        WHERE d.state = 'dead' AND (p_id IS NULL OR d.id = p_id)
          AND (p_consumer IS NULL OR d.consumer = (SELECT c.id FROM semel.consumers c WHERE c.name = p_consumer))
        ORDER BY d.id
        FOR UPDATE);
    IF NOT p_dry_run THEN
        PERFORM semel.require_durable_commit();
        UPDATE semel.dead_letters d SET state = 'redriven', changed_at = clock_timestamp()
        WHERE d.id = ANY (v_letters);
        INSERT INTO semel.audit (actor, action, consumer, letter, reason)
        SELECT p_actor, 'inbox redrive', c.name, d.id, p_reason
        FROM semel.dead_letters d JOIN semel.consumers c ON c.id = d.consumer
        WHERE d.id = ANY (v_letters)
        ORDER BY d.id;
    END IF;
    RETURN cardinality(v_letters);
END
$$;
