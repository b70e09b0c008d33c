-- ?2 what was applied before then, ?3 the most
DELETE FROM semel_dead_letters
WHERE id IN (
    SELECT id FROM semel_dead_letters
    WHERE consumer = (SELECT id FROM semel_consumers WHERE name = ?1) AND state = 'applied' AND changed_at < ?2
    LIMIT ?3
)
