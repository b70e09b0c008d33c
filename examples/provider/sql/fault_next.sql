SELECT sequence, fault, every, seen, remaining FROM faults WHERE kind = ?1 AND remaining > 0 ORDER BY sequence LIMIT 1
