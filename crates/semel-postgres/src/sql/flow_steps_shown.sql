-- The steps of a flow, without the bytes of their results.
SELECT s.step::text AS step, s.kind::text AS kind, s.state::text AS state,
       CASE WHEN s.result IS NOT NULL THEN ''::bytea END AS kept, s.sealed_by::text AS kept_sealed_by,
       coalesce(octet_length(s.result), 0)::bigint AS result_bytes,
       s.provider::text AS provider, s.derived_key::text AS derived_key, s.attempts::text AS attempts,
       greatest((extract(epoch FROM clock_timestamp() - s.sent_at) * 1000)::bigint, 0) AS age_ms,
       greatest((extract(epoch FROM clock_timestamp() - s.attempted_at) * 1000)::bigint, 0) AS since_attempt_ms,
       s.cause::text AS cause, coalesce(s.resolved_in, f.incarnation) <> semel.incarnation_hash() AS restored,
       (extract(epoch FROM s.recorded_at) * 1000)::bigint AS recorded_at_ms,
       (extract(epoch FROM s.settled_at) * 1000)::bigint AS settled_at_ms
FROM semel.flow_steps s
JOIN semel.flows f ON f.execution = s.execution
WHERE s.execution = $1
ORDER BY s.ordinal
