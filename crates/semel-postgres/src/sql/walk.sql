-- Events of a large tick, in order, until so many or so many bytes of payload are reached; one at least.
SELECT $1 AS tick, e.seq, e.id, e.lane, e.created_at, e.topic, e.ordering_key, e.event_type, e.content_type, e.payload,
       e.headers, e.traceparent, e.tracestate
FROM (SELECT e.*, sum(octet_length(e.payload)) OVER (ORDER BY e.seq ROWS UNBOUNDED PRECEDING) AS bytes
      FROM (SELECT e.seq, e.id, e.lane, e.created_at, e.topic, e.ordering_key, e.event_type, e.content_type, e.payload,
                   e.headers, e.traceparent, e.tracestate
            FROM semel.events e
            WHERE e.slot = ANY ($2) AND e.seq > $3 AND e.seq <= $4 AND e.incarnation = $5 AND e.lane = ANY ($6)
              AND NOT pg_visible_in_snapshot(e.xid, $7::pg_snapshot)
              AND pg_visible_in_snapshot(e.xid, $8::pg_snapshot)
            ORDER BY e.seq
            LIMIT $9) e) e
WHERE e.bytes <= $10 OR e.bytes = octet_length(e.payload)
ORDER BY e.seq
