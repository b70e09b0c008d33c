-- Emits events: they are published if and only if this transaction commits (I4), each after every event of its ordering
-- key that was emitted before (I5). One element of each array per event; returns how many there were.
--
-- The ordering keys stay locked until the transaction ends, so this belongs at its end. It takes all of its keys' locks
-- in one order: transactions that emit once, by this function, do not deadlock over them. After a rollback, also to a
-- savepoint, the events are gone; the ids of the next ones count on as if they had never been.
--
-- p_execution is the run whose event ids these are; null for that of the last claim in this transaction, or one of its
-- own. Headers are null or a JSON array of [name, value].
CREATE OR REPLACE FUNCTION semel.emit_all(
    p_execution uuid, p_topics text[], p_ordering_keys text[], p_event_types text[], p_content_types text[],
    p_payloads bytea[], p_headers text[], p_traceparents text[], p_tracestates text[]) RETURNS integer
LANGUAGE plpgsql VOLATILE
-- The planner takes an array of unknown length for a long one, and would plan anew for every call to do better.
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_events      integer := cardinality(p_topics);
    v_execution   uuid;
    v_incarnation bigint;
    v_first       integer;
    v_keys        integer;
    v_xid         xid8;
    v_slot        smallint;
BEGIN
    IF v_events = 1 THEN
        PERFORM semel.emit(p_topics[1], p_ordering_keys[1], p_event_types[1], p_payloads[1], p_content_types[1],
                           p_headers[1], p_traceparents[1], p_tracestates[1], p_execution);
        RETURN 1;
    END IF;
    IF v_events > 1000 THEN
        SELECT count(DISTINCT k) INTO v_keys FROM unnest(p_ordering_keys) k;
        IF v_keys > 1000 THEN
            RAISE EXCEPTION '% ordering keys', v_keys USING ERRCODE = 'SM008', DETAIL = '1000',
                HINT = 'A transaction locks at most 1,000 ordering keys at once: split the work.';
        END IF;
    END IF;
    PERFORM semel.require_headers(h) FROM unnest(p_headers) h WHERE h IS NOT NULL;
    v_execution := coalesce(p_execution, semel.emitting_execution());
    v_incarnation := semel.incarnation_hash();
    v_first := semel.next_ordinal(v_execution, v_events);
    -- As in semel.emit: first the id, then the locks, then the slot, and the seqs in a later statement.
    v_xid := pg_current_xact_id();
    PERFORM semel.lock_ordering_keys(p_ordering_keys);
    v_slot := pg_sequence_last_value('semel.current_slot');
    INSERT INTO semel.events (slot, seq, xid, incarnation, id, lane, created_at, topic, ordering_key, event_type,
                              content_type, payload, headers, traceparent, tracestate)
    SELECT v_slot, nextval('semel.event_seq'), v_xid, v_incarnation,
           semel.event_id(v_execution, v_first + e.position::integer - 1), semel.lane(e.ordering_key),
           clock_timestamp(), e.topic, e.ordering_key, e.event_type, e.content_type, e.payload, e.headers,
           e.traceparent, e.tracestate
    FROM unnest(p_topics, p_ordering_keys, p_event_types, p_content_types, p_payloads, p_headers, p_traceparents,
                p_tracestates)
         WITH ORDINALITY AS e (topic, ordering_key, event_type, content_type, payload, headers, traceparent, tracestate,
                               position);
    RETURN v_events;
END
$$;
