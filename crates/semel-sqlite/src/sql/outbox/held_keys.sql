-- ?1 has a bit for each lane that is asked for; ?2 is a state or NULL.
SELECT lane, ordering_key, state, attempts, retry_at, error, since, (
    SELECT count(*) FROM semel_held_events
    WHERE semel_held_events.lane = semel_held_keys.lane
      AND semel_held_events.ordering_key = semel_held_keys.ordering_key
)
FROM semel_held_keys
WHERE (?1 >> lane) & 1 AND (?2 IS NULL OR state = ?2)
ORDER BY since, lane, ordering_key
LIMIT ?3
