-- $6 retention in milliseconds
SELECT semel.advance($1, $2, $3, $4, $5, make_interval(secs => $6::bigint / 1000.0::float8))
