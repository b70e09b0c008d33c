-- Reads on after a cursor: the events of these lanes in the ticks that follow, in order, until p_events or p_bytes of
-- payload are reached. If there is no further tick and something new is visible, a tick is stored. Call it in a
-- transaction of its own, and publish what it returns only when that has committed.
--
-- The last row has no id; its tick and seq say how far the page reaches. No row at all: nothing is new.
CREATE OR REPLACE FUNCTION semel.page(
    p_tick bigint, p_seq bigint, p_lanes smallint[], p_events integer, p_bytes bigint)
RETURNS TABLE (
    tick bigint, seq bigint, id uuid, lane smallint, created_at timestamptz, topic text, ordering_key text,
    event_type text, content_type text, payload bytea, headers text, traceparent text, tracestate text)
LANGUAGE plpgsql VOLATILE
-- These tables have no statistics, so the plans are pinned: by index, and with the slots as constants, so that only
-- those are locked. Two queries differ in what their index can serve: the first hides seq from it, the second xid.
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET work_mem = '64MB' SET jit = off
AS $$
DECLARE
    c_all         CONSTANT bigint := 9223372036854775807;
    -- So many ticks are stepped through by one call, if they hold little for these lanes.
    c_ticks       CONSTANT integer := 100;
    v_incarnation bigint := semel.require_incarnation();
    v_tick        semel.ticks;
    v_slots       smallint[];
    v_running     xid8[];
    v_at          bigint := p_tick;
    v_after       bigint := p_seq;
    v_stepped     integer := 0;
    v_count       integer := 0;
    v_bytes       bigint := 0;
    v_cut         boolean := false;
BEGIN
    LOOP
        IF v_after = c_all THEN
            SELECT t.* INTO v_tick FROM semel.next_tick(v_at) t;
            IF NOT FOUND THEN
                EXIT WHEN v_stepped > 0;
                IF NOT semel.tick(v_at) THEN
                    RETURN;
                END IF;
                SELECT t.* INTO STRICT v_tick FROM semel.next_tick(v_at) t;
            END IF;
            v_at := v_tick.id;
            v_after := v_tick.seq_above;
        ELSE
            SELECT t.* INTO v_tick FROM semel.next_tick(v_at - 1) t WHERE t.id = v_at;
            -- A tick goes when its slot is emptied, which happens when no lane has anything before it in that tick.
            v_after := CASE WHEN FOUND THEN greatest(v_after, v_tick.seq_above) ELSE c_all END;
        END IF;
        v_stepped := v_stepped + 1;

        IF v_after = c_all THEN
            NULL;
        ELSIF v_tick.events IS NOT NULL THEN
            v_slots := semel.event_slots(v_tick.previous);
            v_running := ARRAY(SELECT pg_snapshot_xip(v_tick.previous));
            FOR seq, id, lane, created_at, topic, ordering_key, event_type, content_type, payload, headers, traceparent,
                tracestate IN
                SELECT e.seq, e.id, e.lane, e.created_at, e.topic, e.ordering_key, e.event_type, e.content_type,
                       e.payload, e.headers, e.traceparent, e.tracestate
                FROM (SELECT e.* FROM semel.events e
                      WHERE e.slot = ANY (v_slots)
                        AND e.xid >= pg_snapshot_xmax(v_tick.previous) AND e.xid < pg_snapshot_xmax(v_tick.snapshot)
                      UNION ALL
                      SELECT e.* FROM semel.events e WHERE e.slot = ANY (v_slots) AND e.xid = ANY (v_running)) e
                WHERE e.incarnation = v_incarnation AND pg_visible_in_snapshot(e.xid, v_tick.snapshot)
                  AND e.lane = ANY (p_lanes) AND e.seq + 0 > v_after
                ORDER BY e.seq + 0
                LIMIT p_events - v_count
            LOOP
                v_bytes := v_bytes + octet_length(payload);
                v_cut := v_count > 0 AND v_bytes > p_bytes;
                EXIT WHEN v_cut;
                tick := v_at;
                v_after := seq;
                v_count := v_count + 1;
                RETURN NEXT;
            END LOOP;
        ELSE
            v_slots := semel.event_slots(v_tick.previous);
            FOR seq, id, lane, created_at, topic, ordering_key, event_type, content_type, payload, headers, traceparent,
                tracestate IN
                SELECT e.seq, e.id, e.lane, e.created_at, e.topic, e.ordering_key, e.event_type, e.content_type,
                       e.payload, e.headers, e.traceparent, e.tracestate
                FROM semel.events e
                WHERE e.slot = ANY (v_slots) AND e.seq > v_after AND e.seq <= v_tick.seq_upto
                  AND e.incarnation = v_incarnation AND e.lane = ANY (p_lanes)
                  AND NOT pg_visible_in_snapshot(e.xid, v_tick.previous)
                  AND pg_visible_in_snapshot(e.xid, v_tick.snapshot)
                ORDER BY e.seq
                LIMIT p_events - v_count
            LOOP
                v_bytes := v_bytes + octet_length(payload);
                v_cut := v_count > 0 AND v_bytes > p_bytes;
                EXIT WHEN v_cut;
                tick := v_at;
                v_after := seq;
                v_count := v_count + 1;
                RETURN NEXT;
            END LOOP;
        END IF;

        EXIT WHEN v_cut OR v_count >= p_events;
        v_after := c_all;
        EXIT WHEN v_stepped >= c_ticks;
    END LOOP;
    tick := v_at;
    seq := v_after;
    id := NULL;
    payload := NULL;
    RETURN NEXT;
END
$$;
