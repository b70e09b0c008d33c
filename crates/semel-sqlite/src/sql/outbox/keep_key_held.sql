-- Somebody may have freed the key by skipping its last event. What comes after it is then tried at once.
INSERT INTO semel_held_keys (lane, ordering_key, state, attempts, retry_at, error, since)
VALUES (?1, ?2, 'retrying', 0, ?3, '', ?3)
ON CONFLICT (lane, ordering_key) DO NOTHING
