UPDATE semel_held_keys SET state = 'redriving' WHERE lane = ?1 AND ordering_key = ?2
