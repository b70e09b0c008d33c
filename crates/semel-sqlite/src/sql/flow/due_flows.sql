-- The longest waiting first.
SELECT tenant, operation, key, execution, fingerprint, epoch
FROM semel_keys
WHERE flow = ?1 AND state = 'in_progress' AND lease_expires_at <= ?2
ORDER BY lease_expires_at, id
LIMIT ?3
