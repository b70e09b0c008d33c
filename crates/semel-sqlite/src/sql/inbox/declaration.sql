SELECT id, generation, recognition FROM semel_consumers WHERE name = ?1
