-- semel.complete for a key that has no row, as a plain statement: prepared, it costs a third of the call. It inserts
-- the row or fails, because COMMIT follows before anybody looks. Every function that it names is prepared anew each
-- time, so what is usual is asked in the fewest words, and the rest is left to semel.completing: a second claim in
-- this transaction, and a commit that waits for standbys to apply it.
-- $5 execution, $11 retention, $12 the claim, which is the execution as text.
INSERT INTO semel.keys (tenant, operation, key, fingerprint, execution, state, status, headers, body, sealed_by,
                        created_at, expires_at)
VALUES ($1, $2, $3, $4,
        CASE WHEN current_setting('semel.claims', true) = $12::text AND current_setting('synchronous_commit') = 'on'
             THEN $5::uuid ELSE semel.completing($5) END,
        $6, $7, $8, $9, $10, clock_timestamp(), clock_timestamp() + $11::interval)
RETURNING execution
