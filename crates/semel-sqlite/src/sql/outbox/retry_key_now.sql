UPDATE semel_held_keys
SET state = 'retrying', attempts = 0, retry_at = ?3
WHERE lane = ?1 AND ordering_key = ?2
