UPDATE semel_keys
SET state = 'unknown', expires_at = max(expires_at, ?6)
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND epoch = ?4 AND execution = ?5 AND state = 'in_progress'
