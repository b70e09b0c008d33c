-- $3 how long ids are kept, in milliseconds
SELECT semel.declare_consumer($1, $2, make_interval(secs => $3::bigint / 1000.0::float8))
