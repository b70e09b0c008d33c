DELETE FROM semel_events WHERE seq = ?1 RETURNING topic
