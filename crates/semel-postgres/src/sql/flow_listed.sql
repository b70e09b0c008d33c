-- $1 execution, $2 flow, $3 tenant, $4 state, each null if it does not matter, $5 the most
SELECT l.execution, l.flow, l.tenant, l.operation, l.key, l.state, l.unwinding, l.holder, l.epoch, l.failures, l.cause,
       (SELECT s.step::text FROM semel.flow_steps s
        WHERE s.execution = l.execution ORDER BY s.ordinal DESC LIMIT 1) AS last_step,
       (extract(epoch FROM l.begun_at) * 1000)::bigint AS begun_at_ms,
       (extract(epoch FROM l.lease_expires_at) * 1000)::bigint AS lease_expires_at_ms,
       l.status, l.input_bytes
FROM (SELECT f.execution, f.flow::text AS flow, f.tenant::text AS tenant, f.operation::text AS operation, f.key,
             semel.flow_state(k.state, k.lease_expires_at, f.paused) AS state, f.unwinding IS NOT NULL AS unwinding,
             k.holder, k.epoch, f.failures, f.cause::text AS cause, f.begun_at, k.lease_expires_at, k.status,
             octet_length(f.input)::bigint AS input_bytes
      FROM semel.flows f
      JOIN semel.keys k ON k.tenant = f.tenant AND k.operation = f.operation AND k.key = f.key
                           AND k.execution = f.execution
      WHERE ($1::uuid IS NULL OR f.execution = $1)
        AND ($2::text IS NULL OR f.flow = $2)
        AND ($3::text IS NULL OR f.tenant = $3)
        AND ($4::text IS NULL OR semel.flow_state(k.state, k.lease_expires_at, f.paused) = $4)
      ORDER BY f.begun_at DESC
      LIMIT $5) l
ORDER BY l.begun_at DESC
