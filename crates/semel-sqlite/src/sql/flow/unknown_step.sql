SELECT step FROM semel_flow_steps WHERE execution = ?1 AND state = 'unknown' ORDER BY ordinal LIMIT 1
