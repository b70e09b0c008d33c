-- $11 lease and $12 retention, in milliseconds
SELECT semel.record_step(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
    make_interval(secs => $11::bigint / 1000.0::float8), make_interval(secs => $12::bigint / 1000.0::float8))
