-- The last step of a switch, in a transaction of its own: records an id that nobody can have had who read the old slot
-- as the current one, because everybody takes an id first and reads the slot then. Returns how many slots it was.
CREATE OR REPLACE FUNCTION semel.record_switch() RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_slots bigint;
BEGIN
    UPDATE semel.slots s SET closed_xid = pg_current_xact_id() WHERE s.state = 'closed' AND s.closed_xid IS NULL;
    GET DIAGNOSTICS v_slots = ROW_COUNT;
    RETURN v_slots;
END
$$;
