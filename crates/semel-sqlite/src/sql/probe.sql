SELECT execution, fingerprint, state, expires_at, lease_expires_at, epoch, recovery_point,
       sealed_by, status, headers, body, flow IS NOT NULL
FROM semel_keys
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
