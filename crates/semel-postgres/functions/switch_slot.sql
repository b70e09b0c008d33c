-- The second step of a switch, in a transaction of its own: from now on, events go to the slot that was prepared. A
-- sequence changes at once and for everybody, whatever becomes of this transaction; if it fails, the list of slots is
-- settled by the next one. Says whether there was a slot to switch to.
CREATE OR REPLACE FUNCTION semel.switch_slot() RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '1s'
AS $$
DECLARE
    v_current semel.slots;
    v_next    smallint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(1936025957, 2) THEN
        RETURN false;
    END IF;
    -- No tick is being stored meanwhile, so the last id that was given out is the closed slot's highest.
    PERFORM pg_advisory_xact_lock(1936025957, 1);
    SELECT s.* INTO v_current FROM semel.slots s WHERE s.slot = pg_sequence_last_value('semel.current_slot');
    SELECT s.slot INTO v_next FROM semel.slots s
    WHERE s.state = 'open' AND s.generation > v_current.generation
    ORDER BY s.generation LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM setval('semel.current_slot', v_next);
    UPDATE semel.slots s
    SET opened_at = clock_timestamp(), opened_seq = coalesce(pg_sequence_last_value('semel.event_seq'), 0),
        opened_position = coalesce(pg_sequence_last_value('semel.position_id'), 0)
    WHERE s.slot = v_next;
    UPDATE semel.slots s
    SET state = 'closed', closed_at = clock_timestamp(),
        ticks_upto = coalesce(pg_sequence_last_value('semel.tick_id'), 0)
    WHERE s.slot = v_current.slot;
    RETURN true;
END
$$;
