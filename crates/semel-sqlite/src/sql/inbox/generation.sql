SELECT generation FROM semel_consumers WHERE name = ?1
