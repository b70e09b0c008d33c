-- $2 lease, in milliseconds
SELECT id, incarnation FROM semel.join_relays($1, make_interval(secs => $2::bigint / 1000.0::float8))
