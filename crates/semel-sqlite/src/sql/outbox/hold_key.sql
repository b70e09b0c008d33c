INSERT INTO semel_held_keys (lane, ordering_key, state, attempts, retry_at, error, since)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (lane, ordering_key) DO UPDATE
SET state = excluded.state, attempts = excluded.attempts, retry_at = excluded.retry_at, error = excluded.error
