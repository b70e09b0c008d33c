-- Makes the list of slots agree with the sequence that names the current one. They differ after a switch that was cut
-- off half way, and in a restored dump, which holds sequences as they were a little later than the tables. The caller
-- holds the lock of ticks.
CREATE OR REPLACE FUNCTION semel.settle_slots() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_current smallint := pg_sequence_last_value('semel.current_slot');
BEGIN
    -- Closed or free, but written to: it is open, and newer than all others.
    UPDATE semel.slots s
    SET state = 'open', generation = (SELECT max(m.generation) + 1 FROM semel.slots m), opened_at = clock_timestamp(),
        closed_at = NULL, closed_xid = NULL, ticks_upto = NULL
    WHERE s.slot = v_current AND s.state <> 'open';
    -- Open, but not written to any more. One that is newer than the current slot was prepared for the next switch.
    UPDATE semel.slots s
    SET state = 'closed', closed_at = clock_timestamp(), closed_xid = NULL,
        ticks_upto = coalesce(pg_sequence_last_value('semel.tick_id'), 0)
    WHERE s.state = 'open'
      AND s.generation < (SELECT c.generation FROM semel.slots c WHERE c.slot = v_current);
END
$$;
