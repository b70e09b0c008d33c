-- $8 retention in milliseconds
SELECT semel.complete_leased(
    $1, $2, $3, $4, $5, $6, $7, make_interval(secs => $8::bigint / 1000.0::float8), $9, $10)
