SELECT count(*), count(DISTINCT charge), (SELECT sum(applied) FROM bench_balances) FROM bench_receipts
