-- $2 how long ids are kept, in milliseconds
SELECT semel.reap_inbox($1, make_interval(secs => $2::bigint / 1000.0::float8), $3)
