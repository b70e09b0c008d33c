-- Reads on after a cursor: the events of these lanes in the ticks that follow, in order, until p_events or p_bytes of
-- payload are reached. If there is no further tick and something new is visible, a tick is stored. Call it in a
-- transaction of its own, and publish what it returns only when that has committed.
--
-- The last row has no id; its tick and seq say how far the page reaches. No row at all: nothing is new.
--
-- A large tick is not read here, because every row would be copied twice on its way. The only row then has slots: the
-- events follow from a plain SELECT over these, after seq up to seq_upto, that previous does not see and snapshot does.
CREATE OR REPLACE FUNCTION semel.page(
    p_tick bigint, p_seq bigint, p_lanes smallint[], p_events integer, p_bytes bigint)
RETURNS TABLE (
    tick bigint, seq bigint, id uuid, lane smallint, created_at timestamptz, topic text, ordering_key text,
    event_type text, content_type text, payload bytea, headers text, traceparent text, tracestate text,
    slots smallint[], seq_upto bigint, incarnation bigint, previous text, snapshot text)
LANGUAGE plpgsql VOLATILE
-- These tables have no statistics, so the plan is pinned: by index, and with the slots as constants, so that only those
-- are locked. It hides seq from the index that could serve it: events of a small tick are found by transaction.
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
            -- A large tick has a page of its own.
            EXIT WHEN v_tick.events IS NULL AND v_stepped > 0;
            v_at := v_tick.id;
            v_after := v_tick.seq_above;
        ELSE
            SELECT t.* INTO v_tick FROM semel.next_tick(v_at - 1) t WHERE t.id = v_at;
            v_after := CASE WHEN FOUND THEN greatest(v_after, v_tick.seq_above) ELSE c_all END;
            -- A tick goes when its slot is emptied, which happens when no lane has anything before it in that tick, and
            -- the older ones go first. To give up one that is lost in the middle of it would lose the rest.
            IF v_after = c_all
                AND EXISTS (SELECT FROM semel.ticks t WHERE t.id < v_at AND t.incarnation = v_incarnation) THEN
                RAISE EXCEPTION 'tick % is gone, and older ones are there', v_at USING ERRCODE = 'data_corrupted',
                    HINT = 'Rows of semel.ticks were deleted by hand. Nothing is published past it: restore them.';
            END IF;
        END IF;
        v_stepped := v_stepped + 1;

        IF v_after <> c_all THEN
            v_slots := semel.event_slots(v_tick.previous);
            IF v_tick.events IS NULL THEN
                tick := v_at;
                seq := v_after;
                slots := v_slots;
                seq_upto := v_tick.seq_upto;
                incarnation := v_incarnation;
                previous := v_tick.previous;
                snapshot := v_tick.snapshot;
                RETURN NEXT;
                RETURN;
            END IF;
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
