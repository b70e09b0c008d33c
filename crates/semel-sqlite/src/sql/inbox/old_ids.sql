SELECT consumer, generation, message_id
FROM semel_inbox AS i
WHERE consumer = (SELECT id FROM semel_consumers WHERE name = ?1) AND received_at < ?2
  -- What waits as a dead letter would apply by itself, and once more from its letter.
  AND NOT EXISTS (
      SELECT 1 FROM semel_dead_letters AS l
      WHERE l.consumer = i.consumer AND l.generation = i.generation AND l.message_id = i.message_id
        AND l.state <> 'applied'
  )
ORDER BY received_at
LIMIT ?3
