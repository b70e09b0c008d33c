CREATE TABLE bench_receipts (
    receipt INTEGER PRIMARY KEY,
    charge TEXT NOT NULL,
    account INTEGER NOT NULL,
    amount INTEGER NOT NULL
) STRICT;
CREATE TABLE bench_balances (
    account INTEGER PRIMARY KEY,
    amount INTEGER NOT NULL,
    applied INTEGER NOT NULL
) STRICT;
WITH RECURSIVE numbers (account) AS (SELECT 0 UNION ALL SELECT account + 1 FROM numbers WHERE account < 1023)
INSERT INTO bench_balances (account, amount, applied) SELECT account, 0, 0 FROM numbers;
