SELECT tick, seq, id, lane, created_at, topic, ordering_key, event_type, content_type, payload, headers, traceparent,
       tracestate
FROM semel.page($1, $2, $3, $4, $5)
