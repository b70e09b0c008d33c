-- semel.complete for a key that has no row, as a plain statement: prepared, it costs a third of the call. It inserts
-- the row or fails, because COMMIT follows before anybody looks. $5 execution, $11 retention in milliseconds.
INSERT INTO semel.keys (tenant, operation, key, fingerprint, execution, state, status, headers, body, sealed_by,
                        created_at, expires_at)
VALUES ($1, $2, $3, $4,
        CASE WHEN position($5::uuid::text IN current_setting('semel.claims', true)) > 0
                  AND current_setting('synchronous_commit') IN ('on', 'remote_apply')
             THEN $5 ELSE semel.completing($5) END,
        $6, $7, $8, $9, $10, clock_timestamp(),
        clock_timestamp() + make_interval(secs => $11::bigint / 1000.0::float8))
RETURNING execution
