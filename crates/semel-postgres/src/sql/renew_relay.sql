-- $2 lease, in milliseconds
SELECT semel.renew_relay($1, make_interval(secs => $2::bigint / 1000.0::float8)) AS relays
