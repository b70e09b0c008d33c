SELECT
    c.name,
    c.generation,
    c.recognition,
    c.retention_ms,
    (SELECT count(*) FROM semel_inbox i WHERE i.consumer = c.id),
    (SELECT count(*) FROM semel_marks m WHERE m.consumer = c.id AND m.generation = c.generation),
    -- A hole between any two ranges, and one before the first if that does not begin at one.
    (
        SELECT coalesce(sum(
            length(m.applied) - length(replace(m.applied, ',', '')) + (substr(m.applied, 1, 2) <> '1-')
        ), 0)
        FROM semel_marks m
        WHERE m.consumer = c.id AND m.generation = c.generation
    ),
    (SELECT count(*) FROM semel_offsets o WHERE o.consumer = c.id AND o.generation = c.generation),
    (SELECT count(*) FROM semel_dead_letters l WHERE l.consumer = c.id AND l.state = 'dead'),
    (SELECT count(*) FROM semel_dead_letters l WHERE l.consumer = c.id AND l.state = 'redriven'),
    (SELECT max(i.received_at) FROM semel_inbox i WHERE i.consumer = c.id)
FROM semel_consumers c
WHERE ?1 IS NULL OR c.name = ?1
ORDER BY c.name
