-- The lease runs on from now: while the step held the writer, nobody could renew it.
UPDATE semel_keys
SET recovery_point = ?6, expires_at = max(expires_at, ?7), lease_expires_at = ?8
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND epoch = ?4 AND execution = ?5 AND state = 'in_progress'
