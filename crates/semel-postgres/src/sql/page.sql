SELECT tick, seq, id, lane, created_at, topic, ordering_key, event_type, content_type, payload, headers, traceparent,
       tracestate, slots, seq_upto, incarnation, previous, snapshot
FROM semel.page($1, $2, $3, $4, $5)
