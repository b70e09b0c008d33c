-- Where a key stands, for one who asks with a fingerprint ($4): what semel.claim finds in its row. No row, or
-- 'expired': whoever has the lock may run it. semel.begin_claim looks by the same rule once it has the lock.
SELECT CASE WHEN k.state <> 'in_progress' AND k.expires_at <= clock_timestamp() THEN 'expired'
            WHEN k.fingerprint <> $4 THEN 'mismatch'
            WHEN k.state IN ('completed', 'failed') THEN 'replay'
            WHEN k.state = 'in_progress' AND k.lease_expires_at > clock_timestamp() THEN 'in_flight'
            ELSE 'unknown' END AS outcome,
       k.execution, k.status, k.headers, k.body, k.sealed_by,
       ceil(extract(epoch FROM k.lease_expires_at - clock_timestamp()) * 1000)::bigint AS retry_after_ms
FROM semel.keys k
WHERE k.tenant = $1 AND k.operation = $2 AND k.key = $3
