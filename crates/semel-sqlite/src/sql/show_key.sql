SELECT tenant, operation, key, execution, state, status,
       coalesce(length(headers), 0) + coalesce(length(body), 0),
       sealed_by, lower(hex(fingerprint)), created_at, expires_at, holder, epoch, recovery_point, lease_expires_at
FROM semel_keys
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
