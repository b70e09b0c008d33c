-- $5 execution, $9 retention in milliseconds
SELECT semel.complete(
    $1, $2, $3, $4, $5,
    (SELECT k.execution FROM semel.keys k
     WHERE k.tenant = $1 AND k.operation = $2 AND k.key = $3
       AND k.state <> 'in_progress' AND k.expires_at <= clock_timestamp()),
    $6, $7, $8, make_interval(secs => $9::bigint / 1000.0::float8), $10, $11)
