INSERT INTO bench_inbox (message_id) VALUES ($1::text) ON CONFLICT DO NOTHING
