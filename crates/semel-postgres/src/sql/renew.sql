-- $6 lease and $7 retention, in milliseconds
SELECT semel.renew(
    $1, $2, $3, $4, $5,
    make_interval(secs => $6::bigint / 1000.0::float8), make_interval(secs => $7::bigint / 1000.0::float8))
