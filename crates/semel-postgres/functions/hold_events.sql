-- Holds events of one key back, with their sequences; one element of each array per event. Those that are held already
-- stay as they are. If the key is not held any more, because an operator has skipped the last of its events, it is held
-- again, to be tried at once under new sequences: it was parked, and placeholders may stand for those that these have.
CREATE OR REPLACE FUNCTION semel.hold_events(
    p_lane smallint, p_ordering_key text, p_ticks bigint[], p_seqs bigint[], p_sequences bigint[], p_ids uuid[],
    p_created_at timestamptz[], p_topics text[], p_event_types text[], p_content_types text[], p_payloads bytea[],
    p_headers text[], p_traceparents text[], p_tracestates text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO semel.held_keys (ordering_key, lane, state, attempts, retry_at, error)
    VALUES (p_ordering_key, p_lane, 'redriving', 0, clock_timestamp(), '')
    ON CONFLICT (ordering_key) DO NOTHING;
    INSERT INTO semel.held_events (ordering_key, lane, tick, seq, sequence, id, created_at, topic, event_type,
                                   content_type, payload, headers, traceparent, tracestate)
    SELECT p_ordering_key, p_lane, e.*
    FROM unnest(p_ticks, p_seqs, p_sequences, p_ids, p_created_at, p_topics, p_event_types, p_content_types, p_payloads,
                p_headers, p_traceparents, p_tracestates) AS e
    ON CONFLICT (ordering_key, seq) DO NOTHING;
END
$$;
