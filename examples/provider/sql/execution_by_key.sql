SELECT outcome, result FROM executions WHERE key = ?1 AND (?2 IS NULL OR kind = ?2) ORDER BY sequence LIMIT 1
