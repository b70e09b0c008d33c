-- Ends a relay's membership and frees every lane it has. Says whether it was one.
CREATE OR REPLACE FUNCTION semel.leave_relays(p_relay bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM semel.require_durable_commit();
    DELETE FROM semel.relays r WHERE r.id = p_relay;
    RETURN FOUND;
END
$$;
