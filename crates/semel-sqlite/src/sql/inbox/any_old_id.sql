SELECT EXISTS (
    SELECT 1 FROM semel_inbox
    WHERE consumer = (SELECT id FROM semel_consumers WHERE name = ?1) AND received_at < ?2
)
