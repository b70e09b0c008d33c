SELECT consumer, generation, message_id
FROM semel_inbox
WHERE consumer = (SELECT id FROM semel_consumers WHERE name = ?1) AND received_at < ?2
ORDER BY received_at
LIMIT ?3
