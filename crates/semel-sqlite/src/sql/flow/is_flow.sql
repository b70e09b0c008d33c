SELECT flow IS NOT NULL FROM semel_keys
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND state IN ('in_progress', 'unknown')
