DELETE FROM semel_held_events WHERE seq = ?1
