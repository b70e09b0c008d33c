-- The epoch stays, so that the worker which ended the work is told from one that lost its lease.
UPDATE semel_keys
SET state = ?6, status = ?7, headers = ?8, body = ?9, sealed_by = ?10, expires_at = ?11,
    holder = NULL, recovery_point = NULL, lease_expires_at = NULL
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND epoch = ?4 AND execution = ?5 AND state = 'in_progress'
