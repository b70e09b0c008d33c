-- Writes the events of other incarnations that no position covers anew, as this incarnation's: with the ids and the
-- seqs they had, so that they come before everything emitted since. Returns how many there were. The caller makes this
-- the incarnation that positions count in, in the same transaction.
CREATE OR REPLACE FUNCTION semel.reselect() RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_incarnation bigint := semel.incarnation_hash();
    v_xid         xid8 := pg_current_xact_id();
    v_slot        smallint;
    v_events      bigint;
BEGIN
    v_slot := pg_sequence_last_value('semel.current_slot');
    INSERT INTO semel.events (slot, seq, xid, incarnation, id, lane, created_at, topic, ordering_key, event_type,
                              content_type, payload, headers, traceparent, tracestate)
    SELECT v_slot, u.seq, v_xid, v_incarnation, u.id, semel.lane(u.ordering_key), u.created_at, u.topic,
           u.ordering_key, u.event_type, u.content_type, u.payload, u.headers, u.traceparent, u.tracestate
    FROM semel.uncovered() u
    WHERE u.incarnation <> v_incarnation;
    GET DIAGNOSTICS v_events = ROW_COUNT;
    -- Whatever else is there of other incarnations has been dealt with from now on.
    INSERT INTO semel.incarnations (hash, name)
    SELECT DISTINCT e.incarnation, 'before ' || semel.incarnation() FROM semel.events e
    WHERE e.incarnation <> v_incarnation
    ON CONFLICT (hash) DO NOTHING;
    RETURN v_events;
END
$$;
