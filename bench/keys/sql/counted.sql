SELECT (SELECT count(*) FROM bench_ledger), (SELECT sum(changes)::bigint FROM bench_accounts),
       (SELECT count(*) FROM semel.keys) + (SELECT count(*) FROM bench_keys WHERE status = 201),
       (SELECT count(*) FROM semel.events) + (SELECT count(*) FROM bench_outbox)
