-- A batch ends at ?2 rows, or with the row whose reply takes it past ?3 bytes. Lengths are read without the replies.
DELETE FROM semel_keys
WHERE id IN (
    WITH expired AS (
        SELECT id, expires_at, coalesce(length(headers), 0) + coalesce(length(body), 0) AS bytes
        FROM semel_keys
        WHERE state <> 'in_progress' AND expires_at <= ?1
        ORDER BY expires_at, id
        LIMIT ?2
    ), measured AS (
        SELECT id, sum(bytes) OVER (ORDER BY expires_at, id ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before
        FROM expired
    )
    SELECT id FROM measured WHERE bytes_before < ?3
)
