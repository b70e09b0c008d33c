-- $9 retention in milliseconds
SELECT semel.complete_leased(
    $1, $2, $3, $4, $5, $6, $7, $8, make_interval(secs => $9::bigint / 1000.0::float8), $10, $11)
