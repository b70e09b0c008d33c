-- Whoever says itself in which generation it consumes may have been in later ones.
SELECT c.id, max(
    c.generation,
    coalesce((SELECT max(i.generation) FROM semel_inbox i WHERE i.consumer = c.id), 0),
    coalesce((SELECT max(m.generation) FROM semel_marks m WHERE m.consumer = c.id), 0),
    coalesce((SELECT max(o.generation) FROM semel_offsets o WHERE o.consumer = c.id), 0),
    coalesce((SELECT max(v.generation) FROM semel_versions v WHERE v.consumer = c.id), 0)
)
FROM semel_consumers c
WHERE c.name = ?1
