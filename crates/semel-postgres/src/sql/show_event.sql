-- A held event may have outlived its slot; an event that a rebase has written anew is there twice.
WITH found AS (
    SELECT e.seq, e.id, e.lane, e.created_at, e.topic, e.ordering_key, e.event_type, e.content_type, e.payload,
           e.headers, e.traceparent, e.tracestate, e.incarnation, e.xid, h.tick, false AS copied
    FROM semel.events e LEFT JOIN semel.held_events h ON h.id = e.id
    WHERE e.id = $1
    UNION ALL
    SELECT h.seq, h.id, h.lane, h.created_at, h.topic, h.ordering_key, h.event_type, h.content_type, h.payload,
           h.headers, h.traceparent, h.tracestate, NULL, NULL, h.tick, true
    FROM semel.held_events h
    WHERE h.id = $1)
SELECT f.seq, f.id, f.lane::smallint AS lane, f.created_at, f.topic::text AS topic,
       f.ordering_key::text AS ordering_key, f.event_type::text AS event_type, f.content_type::text AS content_type,
       f.payload::bytea AS payload, f.headers::text AS headers, f.traceparent::text AS traceparent,
       f.tracestate::text AS tracestate,
       -- The first tick that sees it; far ahead as long as none does.
       coalesce(f.tick,
                (SELECT min(t.id) FROM semel.ticks t
                 WHERE t.incarnation = f.incarnation AND pg_visible_in_snapshot(f.xid, t.snapshot)),
                9223372036854775807) AS tick,
       EXISTS (SELECT FROM semel.held_events h WHERE h.id = f.id) AS held,
       EXISTS (SELECT FROM semel.uncovered() u WHERE u.id = f.id) AS uncovered,
       s.actor, s.reason
FROM found f
LEFT JOIN LATERAL (SELECT a.actor, a.reason FROM semel.audit a
                   WHERE a.event = f.id AND a.action = 'outbox skip' ORDER BY a.id DESC LIMIT 1) s ON true
ORDER BY f.copied, f.incarnation = semel.incarnation_hash() DESC
LIMIT 1
