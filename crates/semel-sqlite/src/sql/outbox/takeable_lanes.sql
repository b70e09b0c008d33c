-- Free ones first, so that nobody is put out without need.
SELECT semel_lanes.lane, semel_lanes.relay
FROM semel_lanes
LEFT JOIN semel_relays ON semel_relays.id = semel_lanes.relay
WHERE semel_relays.id IS NULL OR (semel_relays.id <> ?1 AND semel_relays.expires_at <= ?2)
ORDER BY semel_relays.id IS NOT NULL, semel_relays.expires_at, semel_lanes.lane
LIMIT ?3
