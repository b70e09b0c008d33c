UPDATE semel_held_events SET sequence = ?4 WHERE seq = ?3 AND lane = ?1 AND ordering_key = ?2
