-- $5 lease and $6 retention, in milliseconds
SELECT semel.renew(
    $1, $2, $3, $4,
    make_interval(secs => $5::bigint / 1000.0::float8), make_interval(secs => $6::bigint / 1000.0::float8))
