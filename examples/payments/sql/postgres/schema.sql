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
    -- How often the balance has changed. Events carry it, so that whoever adds changes up can tell their order.
    version  bigint NOT NULL DEFAULT 0 CHECK (version >= 0),
    PRIMARY KEY (tenant, id)
);

-- For books that were opened before versions were counted.
ALTER TABLE payments_accounts ADD COLUMN IF NOT EXISTS version bigint NOT NULL DEFAULT 0 CHECK (version >= 0);

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

-- What there is of each article. An order takes from it in its first step, and gives back what it cannot pay for.
CREATE TABLE IF NOT EXISTS payments_stock (
    tenant   text   COLLATE "C" NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 255),
    sku      text   COLLATE "C" NOT NULL CHECK (sku ~ '^[A-Za-z0-9_.-]{1,64}$'),
    quantity bigint NOT NULL CHECK (quantity BETWEEN 0 AND 9007199254740992),
    PRIMARY KEY (tenant, sku)
);

CREATE TABLE IF NOT EXISTS payments_orders (
    tenant   text   COLLATE "C" NOT NULL,
    id       text   COLLATE "C" NOT NULL CHECK (id ~ '^[A-Za-z0-9_.-]{1,64}$'),
    account  text   COLLATE "C" NOT NULL,
    sku      text   COLLATE "C" NOT NULL,
    quantity bigint NOT NULL CHECK (quantity BETWEEN 1 AND 9007199254740992),
    amount   bigint NOT NULL CHECK (amount BETWEEN 1 AND 9007199254740992),
    currency text   COLLATE "C" NOT NULL,
    referrer text   COLLATE "C",
    -- `pending` while its flow is under way, `failed` once it was undone.
    status   text   COLLATE "C" NOT NULL CHECK (status IN ('pending', 'completed', 'failed')),
    -- The card processor's own id. Cards are nowhere in these tables.
    charge   text   COLLATE "C" CHECK (octet_length(charge) BETWEEN 1 AND 255),
    PRIMARY KEY (tenant, id),
    CHECK ((status = 'completed') = (charge IS NOT NULL))
);

-- What consumers make of the service's events, in one commit with the proof that they have seen them. Each consumer has
-- rows of its own, and each of its generations too: history that is run again makes the same once more, beside the old.

CREATE TABLE IF NOT EXISTS payments_receipts (
    consumer   text   COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    tenant     text   COLLATE "C" NOT NULL,
    charge     text   COLLATE "C" NOT NULL,
    account    text   COLLATE "C" NOT NULL,
    amount     bigint NOT NULL,
    currency   text   COLLATE "C" NOT NULL,
    -- How often it was issued: a charge whose event applied twice is seen here rather than refused.
    issued     bigint NOT NULL,
    PRIMARY KEY (consumer, generation, tenant, charge)
);

CREATE TABLE IF NOT EXISTS payments_balances (
    consumer   text   COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    tenant     text   COLLATE "C" NOT NULL,
    account    text   COLLATE "C" NOT NULL,
    currency   text   COLLATE "C" NOT NULL,
    -- The sum of the changes. A dead letter may leave it below zero until it is applied.
    amount     bigint NOT NULL,
    -- The last version of the account that was added, and how many were: another number means one lost or added twice.
    version    bigint NOT NULL,
    applied    bigint NOT NULL,
    PRIMARY KEY (consumer, generation, tenant, account)
);
