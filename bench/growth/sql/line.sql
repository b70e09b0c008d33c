INSERT INTO bench_ledger (account, amount) VALUES ($1::bigint, $2::bigint)
