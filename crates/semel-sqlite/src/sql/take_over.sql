UPDATE semel_keys
SET epoch = epoch + 1, holder = ?5, lease_expires_at = ?6, expires_at = max(expires_at, ?7)
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND epoch = ?4 AND state = 'in_progress'
