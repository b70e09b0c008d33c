-- Only a lease of which a good part is over: most commits need not write the row.
UPDATE semel_keys
SET lease_expires_at = ?6, expires_at = max(expires_at, ?7)
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND epoch = ?4 AND execution = ?5 AND state = 'in_progress'
  AND lease_expires_at < ?8
