SELECT seq, id, lane, emitted_at, topic, ordering_key, type, content_type, headers, traceparent,
       tracestate, payload
FROM semel_held_events
WHERE id = ?1
