DELETE FROM semel_held_keys
WHERE lane = ?1 AND ordering_key = ?2 AND NOT EXISTS (
    SELECT 1 FROM semel_held_events
    WHERE semel_held_events.lane = semel_held_keys.lane
      AND semel_held_events.ordering_key = semel_held_keys.ordering_key
)
