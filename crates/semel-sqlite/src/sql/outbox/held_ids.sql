SELECT id FROM semel_held_events WHERE lane = ?1
