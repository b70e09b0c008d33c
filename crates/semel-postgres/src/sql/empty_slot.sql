-- $1 how long a closed slot is kept, in milliseconds
SELECT semel.empty_slot(make_interval(secs => $1::bigint / 1000.0::float8))
