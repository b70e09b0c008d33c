-- Emits one event and returns its id. It is published if and only if this transaction commits (I4), after every event
-- of the same ordering key that was emitted before (I5).
--
-- The ordering key stays locked until the transaction ends: other transactions that emit to it wait. A transaction that
-- emits to several keys emits in an order that all share, such as the keys' own, or calls semel.emit_all; otherwise two
-- may deadlock and one of them is rolled back. After a rollback, also to a savepoint, the event is gone.
--
-- Headers are null or a JSON array of [name, value]. The id derives from the run: that of the last claim in this
-- transaction, or one of the transaction's own, unless another is named.
CREATE OR REPLACE FUNCTION semel.emit(
    p_topic text, p_ordering_key text, p_event_type text, p_payload bytea,
    p_content_type text DEFAULT 'application/json', p_headers text DEFAULT NULL,
    p_traceparent text DEFAULT NULL, p_tracestate text DEFAULT NULL, p_execution uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_claims    text := current_setting('semel.claims', true);
    v_emitted   text := current_setting('semel.emitted', true);
    v_execution uuid := p_execution;
    -- The id comes before the slot is read: whoever read the old slot has an id below the one that is recorded after
    -- the switch.
    v_xid       xid8 := pg_current_xact_id();
    v_id        uuid;
    v_secret    bytea;
    v_locked    boolean;
BEGIN
    -- What is usual is answered here: each call of another function costs as much as ten of these lines.
    IF v_execution IS NULL THEN
        v_execution := CASE WHEN v_claims <> '' THEN right(v_claims, 36)::uuid ELSE semel.emitting_execution() END;
    END IF;
    IF p_headers IS NOT NULL THEN
        PERFORM semel.require_headers(p_headers);
    END IF;
    IF v_emitted <> '' THEN
        v_id := semel.event_id(v_execution, semel.next_ordinal(v_execution, 1));
    ELSE
        v_emitted := set_config('semel.emitted', v_execution::text || '000001', true);
        v_id := semel.event_id(v_execution, 0);
    END IF;
    -- The lock that semel.lock_ordering_keys takes.
    SELECT i.secret INTO STRICT v_secret FROM semel.installation i;
    v_locked := pg_advisory_xact_lock(('x' || encode(substring(sha256(
        v_secret || decode('6f72646572696e67206b657920', 'hex') || convert_to(p_ordering_key, 'UTF8'))
        FOR 8), 'hex'))::bit(64)::bigint) IS NULL;
    -- A later statement than the one that waited for the lock: the seq is drawn under it.
    INSERT INTO semel.events (slot, seq, xid, incarnation, id, lane, created_at, topic, ordering_key, event_type,
                              content_type, payload, headers, traceparent, tracestate)
    VALUES (pg_sequence_last_value('semel.current_slot'), nextval('semel.event_seq'), v_xid,
            coalesce(nullif(current_setting('semel.incarnation', true), '')::bigint, semel.incarnation_hash()), v_id,
            -- As semel.lane says.
            get_byte(sha256(convert_to(p_ordering_key, 'UTF8')), 1) & 63,
            clock_timestamp(), p_topic, p_ordering_key, p_event_type, p_content_type, p_payload, p_headers,
            p_traceparent, p_tracestate);
    RETURN v_id;
END
$$;
