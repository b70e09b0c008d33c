SELECT tenant, operation, key, execution, state, status, sealed_by, holder, epoch, recovery_point,
       coalesce(octet_length(headers) + octet_length(body), 0)::bigint AS reply_bytes,
       encode(fingerprint, 'hex') AS fingerprint,
       (extract(epoch FROM created_at) * 1000)::bigint AS created_at_ms,
       (extract(epoch FROM expires_at) * 1000)::bigint AS expires_at_ms,
       (state <> 'in_progress' AND expires_at <= clock_timestamp()) AS expired,
       (extract(epoch FROM lease_expires_at) * 1000)::bigint AS lease_expires_at_ms,
       greatest((extract(epoch FROM lease_expires_at - clock_timestamp()) * 1000)::bigint, 0) AS lease_left_ms
FROM semel.keys
WHERE ($1::text IS NULL OR tenant = $1)
  AND ($2::text IS NULL OR operation = $2)
  AND ($3::text IS NULL OR key = $3)
  AND ($4::text IS NULL OR state = $4)
ORDER BY expires_at DESC
LIMIT $5
