UPDATE semel_flow_steps SET state = ?3, settled_at = ?4, sealed_by = ?5, result = ?6
WHERE execution = ?1 AND step = ?2 AND kind = 'call' AND state = 'pending'
