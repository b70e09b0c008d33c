SELECT at, action, actor, reason
FROM semel_audit
WHERE execution = ?1 AND action IN ('flow_retried', 'flow_resolved', 'flow_cancelled')
ORDER BY id
