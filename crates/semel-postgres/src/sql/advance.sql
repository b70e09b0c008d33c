-- $7 lease and $8 retention, in milliseconds
SELECT semel.advance(
    $1, $2, $3, $4, $5, $6,
    make_interval(secs => $7::bigint / 1000.0::float8), make_interval(secs => $8::bigint / 1000.0::float8))
