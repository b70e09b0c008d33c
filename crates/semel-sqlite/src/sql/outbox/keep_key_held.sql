-- Somebody may have freed the key by skipping its last event. What comes after it is then tried at once, under new
-- sequences: the key was parked, and placeholders may stand for those that it has.
INSERT INTO semel_held_keys (lane, ordering_key, state, attempts, retry_at, error, since)
VALUES (?1, ?2, 'redriving', 0, ?3, '', ?3)
ON CONFLICT (lane, ordering_key) DO NOTHING
