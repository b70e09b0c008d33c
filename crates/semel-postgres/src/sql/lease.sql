-- $6 lease and $7 retention, in milliseconds; $9 the execution that a fresh lease gets
SELECT outcome, execution, epoch, recovery_point, status, headers, body, sealed_by, retry_after_ms
FROM semel.lease(
    $1, $2, $3, $4, $5,
    make_interval(secs => $6::bigint / 1000.0::float8), make_interval(secs => $7::bigint / 1000.0::float8), $8, $9)
