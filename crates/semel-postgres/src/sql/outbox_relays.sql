SELECT r.id, r.name, r.expires_at, r.expires_at <= clock_timestamp() AS expired,
       (SELECT count(*) FROM semel.lanes l WHERE l.relay = r.id) AS lanes
FROM semel.relays r
ORDER BY r.id
