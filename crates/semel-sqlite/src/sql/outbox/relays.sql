SELECT id, name, (SELECT count(*) FROM semel_lanes WHERE semel_lanes.relay = semel_relays.id), expires_at
FROM semel_relays
ORDER BY id
