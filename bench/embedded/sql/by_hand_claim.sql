INSERT INTO bench_keys (key, fingerprint) VALUES (?1, ?2) ON CONFLICT DO NOTHING
