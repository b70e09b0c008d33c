SELECT lane, ordering_key FROM semel_held_keys
WHERE state = 'parked' AND (?1 IS NULL OR (lane = ?2 AND ordering_key = ?1))
ORDER BY since, lane, ordering_key
LIMIT ?3
