CREATE TABLE bench_receipts (
    receipt bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    charge text NOT NULL,
    account bigint NOT NULL,
    amount bigint NOT NULL
);
CREATE TABLE bench_inbox (
    message_id text PRIMARY KEY,
    received_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE bench_balances (
    account bigint PRIMARY KEY,
    amount bigint NOT NULL,
    applied bigint NOT NULL
);
INSERT INTO bench_balances (account, amount, applied) SELECT account, 0, 0 FROM generate_series(0, 1023) AS account;
