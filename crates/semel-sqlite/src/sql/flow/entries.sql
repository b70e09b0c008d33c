-- Not sorted here, where SQLite would move all results.
SELECT ordinal, step, kind, state, provider, derived_key, attempts, sent_at, attempted_at, cause, sealed_by, result,
       coalesce(resolved_in, (SELECT incarnation FROM semel_flows AS f WHERE f.execution = ?1))
           <> (SELECT incarnation FROM semel_outbox)
FROM semel_flow_steps
WHERE execution = ?1
