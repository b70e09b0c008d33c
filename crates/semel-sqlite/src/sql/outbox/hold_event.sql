INSERT INTO semel_held_events (seq, id, lane, emitted_at, topic, ordering_key, type, content_type, headers, traceparent,
                               tracestate, sequence, payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (seq) DO NOTHING
