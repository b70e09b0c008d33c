SELECT e.tick, e.seq, e.sequence, e.id, e.lane::smallint AS lane, e.created_at, e.topic::text AS topic,
       e.ordering_key::text AS ordering_key, e.event_type::text AS event_type, e.content_type::text AS content_type,
       e.payload::bytea AS payload, e.headers::text AS headers, e.traceparent::text AS traceparent,
       e.tracestate::text AS tracestate
FROM semel.held_events e
WHERE e.ordering_key = $1 AND e.lane = $2
ORDER BY e.seq
LIMIT $3
