SELECT places.seq
FROM semel_events AS places INDEXED BY semel_events_places
CROSS JOIN semel_lanes AS lanes ON lanes.lane = places.lane
WHERE places.seq > ?1 AND places.seq > lanes.cursor
ORDER BY places.seq
LIMIT 1
