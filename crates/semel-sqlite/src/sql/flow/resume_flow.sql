-- Somebody works on it again.
UPDATE semel_flows SET paused = 0, released = 0 WHERE execution = ?1 AND (paused OR released)
