-- The tables of the payments service. Semel's own tables live elsewhere, in the schema `semel`.
--
-- Double entry: every movement of money writes one debit and one credit of the same amount, so the entries of a tenant
-- always add up to zero. An account's balance is the sum of its entries, kept in the same transaction. Cards and banks
-- are outside: they have entries but no account row, so no movement waits for a row that all of them would share.

-- Two processes may start at once. The lock is held to the end of this batch.
SELECT pg_advisory_xact_lock(7881706580018552178);

CREATE TABLE IF NOT EXISTS payments_accounts (
    tenant   text   COLLATE "C" NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 255),
    id       text   COLLATE "C" NOT NULL CHECK (id ~ '^[A-Za-z0-9_.-]{1,64}$'),
    currency text   COLLATE "C" NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    -- 2^53: what every JSON client can hold exactly.
    balance  bigint NOT NULL CHECK (balance BETWEEN 0 AND 9007199254740992),
    PRIMARY KEY (tenant, id)
);

CREATE TABLE IF NOT EXISTS payments_charges (
    tenant   text   COLLATE "C" NOT NULL,
    id       text   COLLATE "C" NOT NULL CHECK (id ~ '^[A-Za-z0-9_.-]{1,64}$'),
    account  text   COLLATE "C" NOT NULL,
    amount   bigint NOT NULL CHECK (amount BETWEEN 1 AND 9007199254740992),
    currency text   COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE IF NOT EXISTS payments_transfers (
    tenant       text   COLLATE "C" NOT NULL,
    id           text   COLLATE "C" NOT NULL CHECK (octet_length(id) BETWEEN 1 AND 64),
    from_account text   COLLATE "C" NOT NULL,
    to_account   text   COLLATE "C" NOT NULL,
    amount       bigint NOT NULL CHECK (amount BETWEEN 1 AND 9007199254740992),
    currency     text   COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, id),
    CHECK (from_account <> to_account)
);

CREATE TABLE IF NOT EXISTS payments_bank_transactions (
    tenant         text   COLLATE "C" NOT NULL,
    -- The bank's own id. The constraint below is what makes a webhook that is sent twice count once.
    transaction_id text   COLLATE "C" NOT NULL CHECK (octet_length(transaction_id) BETWEEN 1 AND 255),
    account        text   COLLATE "C" NOT NULL,
    amount         bigint NOT NULL CHECK (amount BETWEEN 1 AND 9007199254740992),
    UNIQUE (tenant, transaction_id)
);

CREATE TABLE IF NOT EXISTS payments_entries (
    tenant    text    COLLATE "C" NOT NULL,
    kind      text    COLLATE "C" NOT NULL CHECK (kind IN ('charge', 'transfer', 'bank')),
    -- The id of the charge, transfer or bank transaction that moved the money.
    reference text    COLLATE "C" NOT NULL,
    side      text    COLLATE "C" NOT NULL CHECK (side IN ('debit', 'credit')),
    account   text    COLLATE "C" NOT NULL,
    -- Tells the outside from an account of a tenant that happens to be called `card`.
    external  boolean NOT NULL,
    amount    bigint  NOT NULL CHECK (abs(amount) BETWEEN 1 AND 9007199254740992),
    currency  text    COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, kind, reference, side),
    CHECK ((side = 'debit') = (amount < 0))
);
