-- Extends a relay's lease to p_lease from now, and says how many relays there are whose lease runs.
CREATE OR REPLACE FUNCTION semel.renew_relay(p_relay bigint, p_lease interval) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM semel.require_relay(p_relay);
    UPDATE semel.relays r SET expires_at = clock_timestamp() + p_lease WHERE r.id = p_relay;
    RETURN (SELECT count(*) FROM semel.relays r WHERE r.expires_at > clock_timestamp());
END
$$;
