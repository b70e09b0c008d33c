-- CROSS JOIN keeps the order of the tables, so that the newest come first without sorting all of them.
SELECT f.execution, f.flow, f.tenant, f.operation, f.key, k.state, f.paused, f.unwinding IS NOT NULL, k.holder,
       k.epoch, f.failures, f.cause, (
           SELECT step FROM semel_flow_steps AS s WHERE s.execution = f.execution ORDER BY s.ordinal DESC LIMIT 1
       ), f.begun_at, k.lease_expires_at, k.status
FROM semel_flows AS f
CROSS JOIN semel_keys AS k USING (tenant, operation, key, execution)
WHERE (?1 IS NULL OR f.flow = ?1) AND (?2 IS NULL OR f.tenant = ?2)
ORDER BY f.id DESC
