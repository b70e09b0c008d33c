-- $3 lease and $4 retention, in milliseconds; $5 whether to resume, $6 the most
SELECT t.execution, t.epoch,
       j.tenant, j.operation, j.key, j.fingerprint, j.flow, j.failures, j.unwinding, j.unwinding_sealed_by, j.cancelled,
       j.lived_ms, j.restored, j.kept, j.kept_sealed_by, j.age_ms, j.step, j.kind, j.state, j.provider, j.derived_key,
       j.attempts, j.since_attempt_ms, j.cause
FROM semel.take_flows(
    $1, $2, make_interval(secs => $3::bigint / 1000.0::float8), make_interval(secs => $4::bigint / 1000.0::float8), $5,
    $6) t
CROSS JOIN LATERAL semel.flow_journal(t.execution, t.epoch) j
