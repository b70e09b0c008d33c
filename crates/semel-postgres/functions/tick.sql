-- Stores a tick if something new is visible, and says whether there is a tick after p_after now. When nothing is new,
-- nothing is written.
--
-- The tick is durable once this transaction has committed, and its events are published only then, so that whoever
-- carries on after a crash finds the same events in the same order. Three things keep it true:
-- - Lock, then look: the snapshot is taken by a statement after the one that waited for the lock. A tick is never older
--   than the one before it. Above READ COMMITTED there would be one snapshot for all statements, so it is refused.
-- - Look, then take an id: after a crash, ids that left no trace in the log are given out again. A tick's own id is at
--   least its snapshot's xmax, so that every id which a surviving tick calls finished has been used up.
-- - The slot is read last, and a switch needs the same lock: a tick lies in the slot of its newest event or in a later
--   one, and is not missed when that of its events is emptied.
CREATE OR REPLACE FUNCTION semel.tick(p_after bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    -- A tick with more events than this is read by walking seqs, because every page of it would sort them all again.
    c_small       CONSTANT integer := 10000;
    v_incarnation bigint := semel.incarnation_hash();
    v_head        semel.ticks;
    v_slots       smallint[];
    v_upto        bigint;
    v_snapshot    pg_snapshot;
    v_running     xid8[];
    v_events      bigint;
    v_late        bigint;
    v_above       bigint := 0;
BEGIN
    PERFORM semel.require_read_committed();
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'the outbox is read in a transaction that has written nothing before'
            USING ERRCODE = 'SM003';
    END IF;

    -- Most of the time nothing is new, and finding that out needs no lock.
    v_head := semel.head_tick();
    IF v_head.id > p_after THEN
        RETURN true;
    END IF;
    v_slots := semel.event_slots(v_head.snapshot);
    v_running := ARRAY(SELECT pg_snapshot_xip(v_head.snapshot));
    PERFORM FROM semel.events e
    WHERE e.slot = ANY (v_slots) AND e.xid >= pg_snapshot_xmax(v_head.snapshot) AND e.incarnation = v_incarnation
    LIMIT 1;
    IF NOT FOUND THEN
        PERFORM FROM semel.events e
        WHERE e.slot = ANY (v_slots) AND e.xid = ANY (v_running) AND e.incarnation = v_incarnation
        LIMIT 1;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END IF;

    PERFORM pg_advisory_xact_lock(1936025957, 1);
    v_head := semel.head_tick();
    -- Before the first tick; or the last one is being carried over to another slot, and was seen in neither.
    IF v_head.id = 0 THEN
        IF NOT pg_try_advisory_xact_lock_shared(1936025957, 2) THEN
            RETURN false;
        END IF;
        v_head := semel.head_tick();
    END IF;
    IF v_head.id > p_after THEN
        RETURN true;
    END IF;
    SELECT pg_current_snapshot() INTO v_snapshot;
    v_upto := pg_sequence_last_value('semel.event_seq');
    v_slots := semel.event_slots(v_head.snapshot);
    v_running := ARRAY(SELECT pg_snapshot_xip(v_head.snapshot));
    SELECT count(*) INTO v_events FROM (
        SELECT FROM semel.events e
        WHERE e.slot = ANY (v_slots) AND e.incarnation = v_incarnation
          AND e.xid >= pg_snapshot_xmax(v_head.snapshot) AND e.xid < pg_snapshot_xmax(v_snapshot)
          AND pg_visible_in_snapshot(e.xid, v_snapshot)
        LIMIT c_small + 1) e;
    SELECT count(*) INTO v_late FROM semel.events e
    WHERE e.slot = ANY (v_slots) AND e.incarnation = v_incarnation
      AND e.xid = ANY (v_running) AND pg_visible_in_snapshot(e.xid, v_snapshot);
    v_events := v_events + v_late;
    IF v_events = 0 THEN
        RETURN false;
    END IF;
    -- Before the first tick there is nothing to pass over.
    IF v_events > c_small AND v_head.id > 0 THEN
        -- Where walking begins. A transaction that took its id after the last tick took its own drew its seqs after
        -- that tick's seq_upto was read. One that was running then may have drawn them before: it is among the
        -- snapshot's running ones, or its id lies between the snapshot's xmax and the tick's own.
        SELECT least(v_head.seq_upto, min(e.seq) - 1) INTO v_above
        FROM (SELECT e.seq, e.xid, e.incarnation FROM semel.events e
              WHERE e.slot = ANY (v_slots) AND e.xid >= pg_snapshot_xmax(v_head.snapshot)
                AND e.xid < coalesce(v_head.xid, pg_snapshot_xmax(v_snapshot))
              UNION ALL
              SELECT e.seq, e.xid, e.incarnation FROM semel.events e
              WHERE e.slot = ANY (v_slots) AND e.xid = ANY (v_running)) e
        WHERE e.incarnation = v_incarnation AND pg_visible_in_snapshot(e.xid, v_snapshot);
    END IF;
    PERFORM semel.require_durable_commit();
    INSERT INTO semel.ticks (slot, id, incarnation, previous, snapshot, events, seq_above, seq_upto, at, xid)
    VALUES (pg_sequence_last_value('semel.current_slot'), nextval('semel.tick_id'), v_incarnation, v_head.snapshot,
            v_snapshot, CASE WHEN v_events <= c_small THEN v_events END, v_above, v_upto, clock_timestamp(),
            pg_current_xact_id());
    RETURN true;
END
$$;
