SELECT count(*), count(DISTINCT charge), (SELECT sum(applied)::bigint FROM bench_balances) FROM bench_receipts
