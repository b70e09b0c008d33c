INSERT INTO bench_receipts (charge, account, amount) VALUES ($1::text, $2::bigint, $3::bigint)
