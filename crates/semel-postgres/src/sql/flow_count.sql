-- $10 how long ago the window opened, in milliseconds
SELECT semel.count_attempt($1, $2, $3, $4, $5, $6, $7, $8, $9, make_interval(secs => $10::bigint / 1000.0::float8))
