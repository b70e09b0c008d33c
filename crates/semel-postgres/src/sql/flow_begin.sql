-- $6 lease and $7 retention, in milliseconds; $8 whether to resume, $9 the execution that a fresh flow gets, $10 to $12
-- what it starts with. What is recorded comes with it if the flow was taken over.
SELECT b.outcome, b.execution, b.epoch, b.status, b.headers, b.body, b.sealed_by, b.retry_after_ms,
       j.tenant, j.operation, j.key, j.fingerprint, j.flow, j.failures, j.unwinding, j.unwinding_sealed_by, j.cancelled,
       j.lived_ms, j.restored, j.kept, j.kept_sealed_by, j.age_ms, j.step, j.kind, j.state, j.provider, j.derived_key,
       j.attempts, j.since_attempt_ms, j.cause
FROM semel.begin_flow(
    $1, $2, $3, $4, $5,
    make_interval(secs => $6::bigint / 1000.0::float8), make_interval(secs => $7::bigint / 1000.0::float8), $8, $9,
    $10, $11, $12) b
LEFT JOIN LATERAL semel.flow_journal(CASE b.outcome WHEN 'resume' THEN b.execution END, b.epoch) j ON true
