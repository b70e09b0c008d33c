-- The reply of a key that has run, and whether it was asked for with this fingerprint ($4): what semel.claim finds in
-- its row. No row: ask semel.begin_claim. A key that is in progress or held has no status.
SELECT k.fingerprint = $4, k.execution, k.status, k.headers, k.body, k.sealed_by
FROM semel.keys k
WHERE k.tenant = $1 AND k.operation = $2 AND k.key = $3 AND k.status IS NOT NULL AND k.expires_at > clock_timestamp()
