UPDATE semel_keys
SET state = 'unknown', expires_at = max(expires_at, ?5)
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND epoch = ?4 AND state = 'in_progress'
