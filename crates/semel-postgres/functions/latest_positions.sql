-- Where each lane stands, by its latest position of the incarnation that positions count in, and the snapshots of the
-- tick it stands in. A lane that has none is left out. The snapshots are null if that tick is gone: then nothing that
-- is still there is covered by the position.
CREATE OR REPLACE FUNCTION semel.latest_positions()
RETURNS TABLE (lane smallint, id bigint, slot smallint, tick bigint, seq bigint, counts text, previous pg_snapshot,
               snapshot pg_snapshot)
LANGUAGE plpgsql STABLE ROWS 64
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_incarnation bigint := (SELECT semel.incarnation_hash(o.incarnation) FROM semel.outbox o
                             WHERE o.incarnation IS NOT NULL);
BEGIN
    RETURN QUERY
    SELECT p.lane::smallint, p.id, p.slot, p.tick, p.seq, p.counts::text, t.previous, t.snapshot
    FROM semel.lanes l
    CROSS JOIN LATERAL (SELECT p.* FROM semel.positions p WHERE p.lane = l.lane ORDER BY p.id DESC LIMIT 1) p
    LEFT JOIN LATERAL (SELECT t.* FROM semel.ticks t
                       WHERE t.id = p.tick AND t.incarnation = p.incarnation LIMIT 1) t ON true
    WHERE p.incarnation = v_incarnation;
END
$$;
