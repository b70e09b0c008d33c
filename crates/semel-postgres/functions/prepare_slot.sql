-- The first step of a switch, in a transaction of its own: gets the next slot ready to be written to, if the current
-- one has been open for longer than p_open_for and anything was written to it. From then on readers look there too.
--
-- Returns 'ready', 'not_yet', 'full' if no slot is free, or 'busy' if another relay is at it. Whatever an earlier
-- switch left half done is settled first.
CREATE OR REPLACE FUNCTION semel.prepare_slot(p_open_for interval) RETURNS text
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '1s'
AS $$
DECLARE
    v_current    semel.slots;
    v_generation bigint;
    v_slot       smallint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(1936025957, 2) THEN
        RETURN 'busy';
    END IF;
    SELECT s.* INTO v_current FROM semel.slots s WHERE s.slot = pg_sequence_last_value('semel.current_slot');
    SELECT max(s.generation) INTO v_generation FROM semel.slots s;
    IF v_current.state <> 'open'
        OR EXISTS (SELECT FROM semel.slots s WHERE s.state = 'open' AND s.generation < v_current.generation) THEN
        PERFORM pg_advisory_xact_lock(1936025957, 1);
        PERFORM semel.settle_slots();
        SELECT s.* INTO v_current FROM semel.slots s WHERE s.slot = v_current.slot;
    END IF;
    IF v_current.opened_at + p_open_for > clock_timestamp()
        OR (coalesce(pg_sequence_last_value('semel.event_seq'), 0) <= v_current.opened_seq
            AND coalesce(pg_sequence_last_value('semel.position_id'), 0) <= v_current.opened_position) THEN
        RETURN 'not_yet';
    END IF;
    IF EXISTS (SELECT FROM semel.slots s WHERE s.state = 'open' AND s.generation > v_current.generation) THEN
        RETURN 'ready';
    END IF;
    SELECT s.slot INTO v_slot FROM semel.slots s WHERE s.state = 'free' ORDER BY s.slot LIMIT 1;
    IF FOUND THEN
        UPDATE semel.slots s
        SET state = 'open', generation = v_generation + 1, opened_at = clock_timestamp(), closed_at = NULL,
            closed_xid = NULL, ticks_upto = NULL
        WHERE s.slot = v_slot;
        RETURN 'ready';
    END IF;
    -- Then the open one grows.
    RETURN 'full';
END
$$;
