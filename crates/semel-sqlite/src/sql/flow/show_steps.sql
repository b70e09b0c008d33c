-- The first columns are those of a journal's entry, with the result emptied of its bytes.
SELECT ordinal, step, kind, state, provider, derived_key, attempts, sent_at, attempted_at, cause, sealed_by,
       CASE WHEN result IS NOT NULL THEN x'' END,
       coalesce(resolved_in, (SELECT incarnation FROM semel_flows AS f WHERE f.execution = ?1))
           <> (SELECT incarnation FROM semel_outbox),
       coalesce(length(result), 0), recorded_at, settled_at
FROM semel_flow_steps
WHERE execution = ?1
ORDER BY ordinal
