SELECT h.lane::smallint AS lane, h.ordering_key::text AS ordering_key, h.state::text AS state, h.attempts, h.retry_at,
       h.error, h.since,
       (SELECT count(*) FROM semel.held_events e WHERE e.ordering_key = h.ordering_key) AS events
FROM semel.held_keys h
WHERE $1::text IS NULL OR h.state = $1
ORDER BY h.since, h.ordering_key
LIMIT $2
