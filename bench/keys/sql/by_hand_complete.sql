UPDATE bench_keys SET status = 201, body = $2::bytea, completed_at = now() WHERE key = $1::text
