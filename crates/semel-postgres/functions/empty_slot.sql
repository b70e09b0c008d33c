-- Empties the oldest closed slot, in a transaction of its own, if everything in it is published and it was closed
-- longer ago than p_keep. It waits for nobody: a slot that somebody reads is tried again later.
--
-- Returns 'emptied', 'none', 'kept' (not old enough), 'blocked' (a transaction that began before the switch is still
-- open and may write to it), 'unpublished', or 'busy'.
CREATE OR REPLACE FUNCTION semel.empty_slot(p_keep interval) RETURNS text
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '1s' SET plan_cache_mode = force_custom_plan SET enable_seqscan = off
AS $$
DECLARE
    v_slot    semel.slots;
    v_floor   xid8;
    v_running xid8[];
    v_current smallint;
BEGIN
    PERFORM semel.require_read_committed();
    IF NOT pg_try_advisory_xact_lock(1936025957, 2) THEN
        RETURN 'busy';
    END IF;
    -- Oldest first: a tick covers events of its own slot and of earlier ones.
    SELECT s.* INTO v_slot FROM semel.slots s WHERE s.state <> 'free' ORDER BY s.generation LIMIT 1;
    IF v_slot.state <> 'closed' OR v_slot.closed_xid IS NULL
        OR NOT EXISTS (SELECT FROM semel.outbox o WHERE o.incarnation = semel.incarnation()) THEN
        RETURN 'none';
    END IF;
    IF v_slot.closed_at + p_keep > clock_timestamp() THEN
        RETURN 'kept';
    END IF;
    -- Whoever could still write to it has a lower id. Once all of those have ended, its rows change no more.
    IF pg_snapshot_xmin(pg_current_snapshot()) < v_slot.closed_xid
        AND EXISTS (SELECT FROM semel.writers_before(v_slot.closed_xid)) THEN
        RETURN 'blocked';
    END IF;
    -- Under load every lane soon stands in a tick that sees all of it, but for what was running then.
    SELECT c.floor, c.running INTO v_floor, v_running FROM semel.covered_upto() c;
    IF EXISTS (SELECT FROM semel.uncovered() u
               WHERE u.slot = v_slot.slot AND (u.xid >= v_floor OR u.xid = ANY (v_running))) THEN
        RETURN 'unpublished';
    END IF;

    BEGIN
        EXECUTE format('LOCK TABLE ONLY semel.%I, ONLY semel.%I, ONLY semel.%I IN ACCESS EXCLUSIVE MODE NOWAIT',
                       'events_' || v_slot.slot, 'ticks_' || v_slot.slot, 'positions_' || v_slot.slot);
    EXCEPTION WHEN lock_not_available THEN
        RETURN 'busy';
    END;
    -- The last tick and the lanes' positions stay, in the current slot. They keep their ids, so that a newer position
    -- which somebody stores meanwhile is still the newer one. The rows that are written first take this transaction's
    -- id, as everywhere before the slot is read.
    INSERT INTO semel.histories AS h (lane, position) SELECT p.lane, p.id FROM semel.latest_positions() p
    ON CONFLICT (lane) DO UPDATE SET position = excluded.position;
    v_current := pg_sequence_last_value('semel.current_slot');
    INSERT INTO semel.positions (slot, id, lane, incarnation, tick, seq, counts, relay, renumbered, at)
    SELECT v_current, p.id, p.lane, p.incarnation, p.tick, p.seq, p.counts, p.relay, p.renumbered, p.at
    FROM semel.lanes l
    CROSS JOIN LATERAL (SELECT p.* FROM semel.positions p WHERE p.lane = l.lane ORDER BY p.id DESC LIMIT 1) p
    WHERE p.slot = v_slot.slot;
    INSERT INTO semel.ticks (slot, id, incarnation, previous, snapshot, events, seq_above, seq_upto, at, xid)
    SELECT v_current, h.id, h.incarnation, h.previous, h.snapshot, h.events, h.seq_above, h.seq_upto, h.at, h.xid
    FROM semel.head_tick() h
    WHERE h.slot = v_slot.slot;
    EXECUTE format('TRUNCATE ONLY semel.%I, ONLY semel.%I, ONLY semel.%I',
                   'events_' || v_slot.slot, 'ticks_' || v_slot.slot, 'positions_' || v_slot.slot);
    DELETE FROM semel.redriven r WHERE NOT EXISTS (SELECT FROM semel.events e WHERE e.seq <= r.seq);
    UPDATE semel.slots s SET state = 'free', closed_at = NULL, closed_xid = NULL, ticks_upto = NULL
    WHERE s.slot = v_slot.slot;
    RETURN 'emptied';
END
$$;
