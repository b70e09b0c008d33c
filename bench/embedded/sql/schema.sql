-- The business: a charge is a line in the ledger and a balance that changes.
CREATE TABLE bench_ledger (
    line INTEGER PRIMARY KEY,
    account INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    at INTEGER NOT NULL DEFAULT (unixepoch())
) STRICT;
CREATE TABLE bench_accounts (
    account INTEGER PRIMARY KEY,
    balance INTEGER NOT NULL,
    changes INTEGER NOT NULL
) STRICT;
WITH RECURSIVE numbers (account) AS (SELECT 0 UNION ALL SELECT account + 1 FROM numbers WHERE account < 1023)
INSERT INTO bench_accounts (account, balance, changes) SELECT account, 0, 0 FROM numbers;

-- Idempotency and outbox as articles write them.
CREATE TABLE bench_keys (
    key TEXT NOT NULL PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (unixepoch()),
    status INTEGER,
    body BLOB,
    completed_at INTEGER
) STRICT;
CREATE TABLE bench_outbox (
    event INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    ordering_key TEXT NOT NULL,
    event_type TEXT NOT NULL,
    payload BLOB NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (unixepoch()),
    published_at INTEGER
) STRICT;
CREATE INDEX bench_outbox_unpublished ON bench_outbox (event) WHERE published_at IS NULL;
