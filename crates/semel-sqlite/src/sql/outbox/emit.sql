INSERT INTO semel_events (id, lane, emitted_at, topic, ordering_key, type, content_type, headers, traceparent,
                          tracestate, payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
