-- Takes up to p_most lanes that nobody has, or whose relay's lease has run out, and returns where each stands. A relay
-- whose lease has run out loses its membership here, and with it every lane, so that its next write is refused (I7). A
-- relay that is writing at this very moment is passed over.
CREATE OR REPLACE FUNCTION semel.take_lanes(p_relay bigint, p_most integer)
RETURNS TABLE (lane smallint, tick bigint, seq bigint, counts text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_lanes smallint[];
BEGIN
    -- Not while a slot is emptied: to a statement that began before, what is truncated is gone, and what is carried
    -- over is not there yet. Lanes without their positions would start over.
    PERFORM pg_advisory_xact_lock_shared(1936025957, 2);
    PERFORM semel.require_relay(p_relay);
    PERFORM semel.require_durable_commit();
    DELETE FROM semel.relays d
    WHERE d.id IN (SELECT r.id FROM semel.relays r
                   WHERE r.expires_at <= clock_timestamp() AND r.id <> p_relay
                   FOR UPDATE SKIP LOCKED);
    WITH taken AS (
        UPDATE semel.lanes u SET relay = p_relay
        WHERE u.lane IN (SELECT l.lane FROM semel.lanes l WHERE l.relay IS NULL
                         ORDER BY l.lane LIMIT p_most FOR UPDATE SKIP LOCKED)
        RETURNING u.lane)
    SELECT array_agg(t.lane) INTO v_lanes FROM taken t;
    RETURN QUERY
    SELECT t.lane, coalesce(p.tick, 0), coalesce(p.seq, 9223372036854775807), coalesce(p.counts, '{}')
    FROM unnest(v_lanes) AS t (lane)
    LEFT JOIN semel.latest_positions() p ON p.lane = t.lane
    ORDER BY t.lane;
END
$$;
