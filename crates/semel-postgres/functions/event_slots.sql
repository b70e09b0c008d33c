-- The slots that may hold events of transactions which p_previous does not see. All others are left alone, so that a
-- slot which everybody has passed has no reader and can be emptied.
CREATE OR REPLACE FUNCTION semel.event_slots(p_previous pg_snapshot) RETURNS smallint[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ARRAY(
        SELECT s.slot FROM semel.slots s
        WHERE s.state <> 'free' AND (s.closed_xid IS NULL OR s.closed_xid > pg_snapshot_xmin(p_previous)));
END
$$;
