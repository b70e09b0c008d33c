-- Walks the places of the events that wait, and of those that lanes further ahead have passed among them.
WITH waiting (events, first) AS (
    SELECT count(*), min(places.seq)
    FROM semel_events AS places INDEXED BY semel_events_places
    CROSS JOIN semel_lanes AS lanes ON lanes.lane = places.lane
    WHERE places.seq > (SELECT semel_outbox.covered FROM semel_outbox) AND places.seq > lanes.cursor
)
SELECT events,
       (SELECT semel_events.emitted_at FROM semel_events WHERE semel_events.seq = first),
       (SELECT count(*) FROM semel_held_keys WHERE state <> 'parked'),
       (SELECT count(*) FROM semel_held_keys WHERE state = 'parked')
FROM waiting
