SELECT semel.incarnation() AS incarnation, o.incarnation::text AS positions_of,
       (SELECT count(*) FROM semel.lanes l WHERE l.relay IS NULL) AS free_lanes
FROM semel.outbox o
