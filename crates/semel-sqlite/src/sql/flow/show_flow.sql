SELECT f.execution, f.flow, f.tenant, f.operation, f.key, k.state, f.paused, f.unwinding IS NOT NULL, k.holder,
       k.epoch, f.failures, f.cause, (
           SELECT step FROM semel_flow_steps AS s WHERE s.execution = f.execution ORDER BY s.ordinal DESC LIMIT 1
       ), f.begun_at, k.lease_expires_at, k.status, length(f.input)
FROM semel_flows AS f
JOIN semel_keys AS k USING (tenant, operation, key, execution)
WHERE f.execution = ?1
