-- Lines, and keys that were stored by operations: they expire after $1, and all that the fill stored before it.
SELECT (SELECT count(*) FROM bench_ledger), (SELECT count(*) FROM semel.keys k WHERE k.expires_at > $1::timestamptz)
