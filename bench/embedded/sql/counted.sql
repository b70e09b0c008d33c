SELECT (SELECT count(*) FROM bench_ledger), (SELECT sum(changes) FROM bench_accounts),
       (SELECT count(*) FROM semel_keys WHERE state = 'completed')
       + (SELECT count(*) FROM bench_keys WHERE status = 201),
       (SELECT count(*) FROM semel_events) + (SELECT count(*) FROM bench_outbox)
