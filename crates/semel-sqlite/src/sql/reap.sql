DELETE FROM semel_keys
WHERE id IN (
    SELECT id FROM semel_keys WHERE state <> 'in_progress' AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2
)
