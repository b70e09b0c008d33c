SELECT count(*), max(l.id)
FROM semel_dead_letters l
JOIN semel_consumers c ON c.id = l.consumer
WHERE l.id BETWEEN ?1 AND ?2 AND (?3 IS NULL OR c.name = ?3) AND l.state = 'dead'
