-- The new generation has declared nothing, so it may recognise messages by something else.
UPDATE semel_consumers
SET generation = ?2, recognition = NULL, retention_ms = NULL, declared_at = NULL
WHERE id = ?1
