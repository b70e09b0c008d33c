UPDATE semel_flow_steps SET state = ?3, settled_at = ?4, result = ?5
WHERE execution = ?1 AND step = ?2 AND kind = 'call' AND state = 'unknown'
