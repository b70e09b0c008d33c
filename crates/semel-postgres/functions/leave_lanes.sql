-- Stores where lanes stand and frees them, in one durable commit: whoever takes them goes on from there.
CREATE OR REPLACE FUNCTION semel.leave_lanes(
    p_relay bigint, p_lanes smallint[], p_ticks bigint[], p_seqs bigint[], p_counts text[]) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM semel.checkpoint(p_relay, p_lanes, p_ticks, p_seqs, p_counts, true);
    UPDATE semel.lanes l SET relay = NULL WHERE l.lane = ANY (p_lanes) AND l.relay = p_relay;
    RETURN cardinality(p_lanes);
END
$$;
