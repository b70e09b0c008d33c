SELECT recovery_point FROM semel_keys
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND epoch = ?4 AND execution = ?5 AND state = 'in_progress'
