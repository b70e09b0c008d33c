-- $6 pause, in milliseconds
SELECT semel.park_flow($1, $2, $3, $4, $5, make_interval(secs => $6::bigint / 1000.0::float8), $7)
