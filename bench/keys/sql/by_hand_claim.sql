INSERT INTO bench_keys (key, fingerprint) VALUES ($1::text, $2::bytea) ON CONFLICT DO NOTHING
