SELECT
    EXISTS (SELECT 1 FROM semel_inbox WHERE consumer = ?1 AND generation = ?2),
    EXISTS (SELECT 1 FROM semel_marks WHERE consumer = ?1 AND generation = ?2),
    EXISTS (SELECT 1 FROM semel_offsets WHERE consumer = ?1 AND generation = ?2)
