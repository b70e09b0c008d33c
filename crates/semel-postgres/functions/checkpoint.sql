-- Stores where lanes stand: one element of each array per lane. Refused with SM007 once another relay has taken over
-- (I7).
--
-- Without p_durable the commit does not wait for the disk: a crash may lose the last of these, and then events are
-- published again with the ids and sequences they had, because the ticks are durable. p_renumbered says that the counts
-- do not follow from the position before. Only then is a position stored that is not beyond the last one: any other was
-- overtaken, by a redrive where the lane stands or by a later call.
CREATE OR REPLACE FUNCTION semel.checkpoint(
    p_relay bigint, p_lanes smallint[], p_ticks bigint[], p_seqs bigint[], p_counts text[],
    p_durable boolean DEFAULT false, p_renumbered boolean DEFAULT false) RETURNS integer
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_incarnation bigint := semel.incarnation_hash();
    v_slot        smallint;
BEGIN
    -- The row lock takes this transaction's id, as everywhere before the slot is read.
    PERFORM semel.require_relay(p_relay, p_lanes);
    IF p_durable THEN
        PERFORM semel.require_durable_commit();
    ELSE
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    v_slot := pg_sequence_last_value('semel.current_slot');
    INSERT INTO semel.positions (slot, id, lane, incarnation, tick, seq, counts, relay, renumbered, at)
    SELECT v_slot, nextval('semel.position_id'), p.lane, v_incarnation, p.tick, p.seq, p.counts, p_relay, p_renumbered,
           clock_timestamp()
    FROM unnest(p_lanes, p_ticks, p_seqs, p_counts) AS p (lane, tick, seq, counts)
    LEFT JOIN LATERAL (SELECT l.tick, l.seq, l.incarnation FROM semel.positions l
                       WHERE l.lane = p.lane ORDER BY l.id DESC LIMIT 1) l ON true
    WHERE p_renumbered OR l.tick IS NULL OR l.incarnation <> v_incarnation OR (p.tick, p.seq) > (l.tick, l.seq);
    RETURN cardinality(p_lanes);
END
$$;
