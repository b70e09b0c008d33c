INSERT INTO bench_ledger (account, amount) VALUES (?1, ?2)
