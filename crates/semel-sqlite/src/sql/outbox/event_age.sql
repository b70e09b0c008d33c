-- The length of a payload is read without it.
SELECT emitted_at, length(payload) FROM semel_events WHERE seq = ?1
