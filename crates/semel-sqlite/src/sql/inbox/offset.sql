SELECT next FROM semel_offsets
WHERE consumer = ?1 AND generation = ?2 AND source = ?3 AND topic = ?4 AND partition = ?5
