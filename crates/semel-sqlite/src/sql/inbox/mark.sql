SELECT applied FROM semel_marks
WHERE consumer = ?1 AND generation = ?2 AND incarnation = ?3 AND topic = ?4 AND lane = ?5
