-- semel.complete_leased as a plain statement, in the transaction that was fenced. It completes or fails, because COMMIT
-- follows before anybody looks, and so does a flow that is to be undone. $9 retention in milliseconds.
WITH completed AS (
    UPDATE semel.keys k
    SET state = CASE WHEN $10 THEN 'failed' ELSE 'completed' END, status = $6, headers = $7, body = $8, sealed_by = $11,
        expires_at = clock_timestamp() + make_interval(secs => $9::bigint / 1000.0::float8), lease_expires_at = NULL
    WHERE k.tenant = $1 AND k.operation = $2 AND k.key = $3 AND k.execution = $4::uuid AND k.epoch = $5
      AND k.state = 'in_progress'
    RETURNING k.execution)
SELECT CASE WHEN c.is_ours AND NOT c.is_unwanted AND current_setting('semel.fenced', true) = $4::text
                 AND current_setting('synchronous_commit') IN ('on', 'remote_apply')
            THEN $4 ELSE semel.completing_leased($4, c.is_ours) END AS execution
FROM (SELECT EXISTS (SELECT FROM completed) AS is_ours,
             EXISTS (SELECT FROM semel.flows f
                     WHERE f.execution = $4 AND f.cancelled AND f.unwinding IS NULL) AS is_unwanted) c
