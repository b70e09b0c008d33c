-- Which transactions the positions of all lanes cover: those with an id below the floor, but for the running ones.
-- These were running when the ticks that lanes stand in were stored, and are looked at one by one: a transaction that
-- is open for long costs a look at its own events, and not at all that came after it. The floor is zero, which says
-- nothing, while a lane has no position or its tick is gone.
CREATE OR REPLACE FUNCTION semel.covered_upto(OUT floor xid8, OUT running xid8[])
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_covered pg_snapshot[];
BEGIN
    SELECT array_agg(CASE WHEN p.seq = 9223372036854775807 THEN p.snapshot ELSE p.previous END) INTO v_covered
    FROM semel.latest_positions() p
    WHERE p.snapshot IS NOT NULL;
    floor := '0';
    running := '{}';
    IF cardinality(v_covered) = 64 THEN
        SELECT min(pg_snapshot_xmax(c)) INTO floor FROM unnest(v_covered) c;
        running := ARRAY(SELECT DISTINCT x FROM unnest(v_covered) c, pg_snapshot_xip(c) x WHERE x < floor);
    END IF;
END
$$;
