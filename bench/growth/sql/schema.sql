-- The business: a charge is a line in the ledger.
CREATE TABLE bench_ledger (
    line bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account bigint NOT NULL,
    amount bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
