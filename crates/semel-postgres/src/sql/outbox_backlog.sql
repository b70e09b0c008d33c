SELECT b.events, b.oldest, clock_timestamp() AS now,
       (SELECT count(*) FROM semel.held_keys h WHERE h.state <> 'parked') AS retrying_keys,
       (SELECT count(*) FROM semel.held_keys h WHERE h.state = 'parked') AS parked_keys
FROM semel.backlog() b
