-- The epoch rises, so that the last worker, if it is still about, cannot leave it in the middle a second time.
UPDATE semel_keys
SET epoch = epoch + 1, lease_expires_at = ?5
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND epoch = ?4 AND state = 'in_progress'
