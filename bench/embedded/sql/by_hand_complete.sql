UPDATE bench_keys SET status = 201, body = ?2, completed_at = unixepoch() WHERE key = ?1
