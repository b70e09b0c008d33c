-- What operators did to a flow, oldest first.
SELECT (extract(epoch FROM a.at) * 1000)::bigint AS at_ms, a.action, a.actor, a.reason
FROM semel.audit a
WHERE a.execution = $1 AND a.action IN ('flow_retried', 'flow_resolved', 'flow_cancelled')
ORDER BY a.id
