-- Committed events that no position covers: those beyond their lane's position, and those of incarnations that nobody
-- has dealt with. It has no settings of its own, so that it becomes a part of the query that uses it.
CREATE OR REPLACE FUNCTION semel.uncovered() RETURNS SETOF semel.events
LANGUAGE sql STABLE AS $$
    SELECT e.*
    FROM semel.events e
    CROSS JOIN semel.outbox o
    LEFT JOIN semel.latest_positions() p ON p.lane = e.lane
    LEFT JOIN semel.incarnations i ON i.hash = e.incarnation
    WHERE i.hash IS NULL
       OR (i.name = o.incarnation
           AND (p.snapshot IS NULL
                OR NOT (pg_visible_in_snapshot(e.xid, p.previous)
                        OR (pg_visible_in_snapshot(e.xid, p.snapshot) AND e.seq <= p.seq))))
$$;
