UPDATE semel_held_keys SET state = ?3, attempts = ?4, retry_at = ?5, error = ?6 WHERE lane = ?1 AND ordering_key = ?2
