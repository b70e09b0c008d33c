SELECT seq, id, lane, emitted_at, topic, ordering_key, type, content_type, headers, traceparent,
       tracestate, payload, sequence
FROM semel_held_events
WHERE lane = ?1 AND ordering_key = ?2
ORDER BY seq
LIMIT ?3
