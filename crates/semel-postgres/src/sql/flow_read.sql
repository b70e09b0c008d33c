-- The fence comes first, because the journal is asked for its epoch: it waits until nothing of the lease is under way.
SELECT j.tenant, j.operation, j.key, j.fingerprint, j.flow, j.failures, j.unwinding, j.unwinding_sealed_by, j.cancelled,
       j.lived_ms, j.restored, j.kept, j.kept_sealed_by, j.age_ms, j.step, j.kind, j.state, j.provider, j.derived_key,
       j.attempts, j.since_attempt_ms, j.cause
FROM semel.fence($1, $2, $3, $4, $5, NULL) AS f (epoch)
CROSS JOIN LATERAL semel.flow_journal($4, f.epoch) j
