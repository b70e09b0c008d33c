-- Those that are long gone and have no lane which somebody would take over.
DELETE FROM semel_relays
WHERE expires_at <= ?1 AND NOT EXISTS (SELECT 1 FROM semel_lanes WHERE semel_lanes.relay = semel_relays.id)
