SELECT version FROM semel_versions WHERE consumer = ?1 AND generation = ?2 AND entity = ?3
