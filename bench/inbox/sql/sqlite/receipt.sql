INSERT INTO bench_receipts (charge, account, amount) VALUES (?1, ?2, ?3)
