-- $10 retention in milliseconds
SELECT semel.complete(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, make_interval(secs => $10::bigint / 1000.0::float8), $11, $12)
