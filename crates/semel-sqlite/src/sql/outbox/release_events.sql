DELETE FROM semel_held_events WHERE lane = ?1 AND ordering_key = ?2 AND seq <= ?3
