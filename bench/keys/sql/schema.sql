-- The business: a charge is a line in the ledger and a balance that changes.
CREATE TABLE bench_ledger (
    line bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account bigint NOT NULL,
    amount bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE bench_accounts (
    account bigint PRIMARY KEY,
    balance bigint NOT NULL,
    changes bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO bench_accounts (account, balance, changes) SELECT account, 0, 0 FROM generate_series(0, 1023) AS account;

-- Idempotency and outbox as articles write them.
CREATE TABLE bench_keys (
    key text PRIMARY KEY,
    fingerprint bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    status integer,
    body bytea,
    completed_at timestamptz
);
CREATE TABLE bench_outbox (
    event bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic text NOT NULL,
    ordering_key text NOT NULL,
    event_type text NOT NULL,
    payload bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz
);
CREATE INDEX bench_outbox_unpublished ON bench_outbox (event) WHERE published_at IS NULL;

-- The whole operation as one call, by the SQL functions. Assignments, because SELECT INTO and PERFORM set up a scan
-- each.
CREATE FUNCTION bench_charge(
    p_key text, p_fingerprint bytea, p_account bigint, p_amount bigint, p_event_key text, p_payload bytea,
    p_reply bytea) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_claim record := semel.claim('bench', 'charge', p_key, p_fingerprint, false);
    v_done  uuid;
BEGIN
    IF v_claim.outcome = 'fresh' THEN
        INSERT INTO bench_ledger (account, amount) VALUES (p_account, p_amount);
        UPDATE bench_accounts SET balance = balance + p_amount, changes = changes + 1 WHERE account = p_account;
        v_done := semel.emit('charges', p_event_key, 'charge.created', p_payload);
        v_done := semel.complete('bench', 'charge', p_key, p_fingerprint, v_claim.execution, v_claim.replaces, 201, '',
                                 p_reply);
    END IF;
    RETURN v_claim.outcome;
END
$$;
