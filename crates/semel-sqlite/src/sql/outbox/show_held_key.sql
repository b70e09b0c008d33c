SELECT lane, ordering_key, state, attempts, retry_at, error, since, (
    SELECT count(*) FROM semel_held_events
    WHERE semel_held_events.lane = semel_held_keys.lane
      AND semel_held_events.ordering_key = semel_held_keys.ordering_key
)
FROM semel_held_keys
WHERE lane = ?1 AND ordering_key = ?2
