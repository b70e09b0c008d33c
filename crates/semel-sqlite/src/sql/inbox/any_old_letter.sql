-- ?2 what was applied before then
SELECT EXISTS (
    SELECT 1 FROM semel_dead_letters
    WHERE consumer = (SELECT id FROM semel_consumers WHERE name = ?1) AND state = 'applied' AND changed_at < ?2
)
