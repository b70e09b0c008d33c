-- Another event is the first now. A key that waits for somebody goes on waiting.
UPDATE semel_held_keys
SET attempts = 0, retry_at = ?3
WHERE lane = ?1 AND ordering_key = ?2 AND ?4 < (
    SELECT min(seq) FROM semel_held_events
    WHERE semel_held_events.lane = semel_held_keys.lane
      AND semel_held_events.ordering_key = semel_held_keys.ordering_key
)
