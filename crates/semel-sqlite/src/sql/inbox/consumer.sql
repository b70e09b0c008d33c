SELECT id FROM semel_consumers WHERE name = ?1
