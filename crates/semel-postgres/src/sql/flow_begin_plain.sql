-- semel.begin_flow for a key that has no row, as a plain statement: prepared, it costs a fraction of the call. Without
-- a row in the answer nothing was done, and the function says where the key stands.
--
-- Nobody is waited for: whoever has the lock may be about to insert this key, and whoever changes a row that is there
-- would be waited for by the index, which tells only of one that this statement does not see.
--
-- $5 holder, $6 lease and $7 retention in milliseconds, $8 execution, $9 to $11 what the flow starts with, $12 lock.
WITH leased AS (
    INSERT INTO semel.keys (tenant, operation, key, fingerprint, execution, state, created_at, expires_at, holder,
                            epoch, lease_expires_at, flow)
    SELECT $1, $2, $3, $4, $8, 'in_progress', n.now, n.now + make_interval(secs => $7::bigint / 1000.0::float8), $5,
           1, n.now + make_interval(secs => $6::bigint / 1000.0::float8), $9
    FROM (SELECT clock_timestamp() AS now, pg_try_advisory_xact_lock($12) AS locked,
                 CASE WHEN current_setting('synchronous_commit') IN ('on', 'remote_apply') THEN ''
                      ELSE set_config('synchronous_commit', 'on', true) END AS durable) n
    WHERE n.locked AND n.durable IS NOT NULL
      AND NOT EXISTS (SELECT FROM semel.keys k WHERE k.tenant = $1 AND k.operation = $2 AND k.key = $3)
    ON CONFLICT ON CONSTRAINT keys_pkey DO NOTHING
    RETURNING created_at)
INSERT INTO semel.flows (execution, tenant, operation, key, flow, input, sealed_by, begun_at, incarnation)
SELECT $8, $1, $2, $3, $9, $10, $11, l.created_at,
       coalesce(nullif(current_setting('semel.incarnation', true), '')::bigint, semel.incarnation_hash())
FROM leased l
RETURNING execution
