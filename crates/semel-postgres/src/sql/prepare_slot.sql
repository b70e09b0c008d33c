-- $1 how long the current slot is open at least, in milliseconds
SELECT semel.prepare_slot(make_interval(secs => $1::bigint / 1000.0::float8))
