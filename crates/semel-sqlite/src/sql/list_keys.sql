SELECT tenant, operation, key, execution, state, status,
       coalesce(length(headers), 0) + coalesce(length(body), 0),
       sealed_by, lower(hex(fingerprint)), created_at, expires_at, holder, epoch, recovery_point, lease_expires_at
FROM semel_keys
WHERE (?1 IS NULL OR tenant = ?1) AND (?2 IS NULL OR operation = ?2) AND (?3 IS NULL OR state = ?3)
ORDER BY id DESC
LIMIT ?4
