-- The tables of the payments service. Semel's own tables stand beside them and begin with `semel_`.
--
-- Double entry: every movement of money writes one debit and one credit of the same amount, so the entries of a tenant
-- always add up to zero. An account's balance is the sum of its entries, kept in the same transaction. Cards and banks
-- are outside: they have entries but no account row.

CREATE TABLE IF NOT EXISTS payments_accounts (
    tenant   TEXT    NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 255),
    id       TEXT    NOT NULL CHECK (octet_length(id) BETWEEN 1 AND 64 AND id NOT GLOB '*[^A-Za-z0-9_.-]*'),
    currency TEXT    NOT NULL CHECK (currency GLOB '[A-Z][A-Z][A-Z]'),
    -- 2^53: what every JSON client can hold exactly.
    balance  INTEGER NOT NULL CHECK (balance BETWEEN 0 AND 9007199254740992),
    -- How often the balance has changed. Events carry it, so that whoever adds changes up can tell their order.
    version  INTEGER NOT NULL DEFAULT 0 CHECK (version >= 0),
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS payments_charges (
    tenant   TEXT    NOT NULL,
    id       TEXT    NOT NULL CHECK (octet_length(id) BETWEEN 1 AND 64 AND id NOT GLOB '*[^A-Za-z0-9_.-]*'),
    account  TEXT    NOT NULL,
    amount   INTEGER NOT NULL CHECK (amount BETWEEN 1 AND 9007199254740992),
    currency TEXT    NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS payments_transfers (
    tenant       TEXT    NOT NULL,
    id           TEXT    NOT NULL CHECK (octet_length(id) BETWEEN 1 AND 64),
    from_account TEXT    NOT NULL,
    to_account   TEXT    NOT NULL,
    amount       INTEGER NOT NULL CHECK (amount BETWEEN 1 AND 9007199254740992),
    currency     TEXT    NOT NULL,
    PRIMARY KEY (tenant, id),
    CHECK (from_account <> to_account)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS payments_bank_transactions (
    tenant         TEXT    NOT NULL,
    -- The bank's own id. The constraint below is what makes a webhook that is sent twice count once.
    transaction_id TEXT    NOT NULL CHECK (octet_length(transaction_id) BETWEEN 1 AND 255),
    account        TEXT    NOT NULL,
    amount         INTEGER NOT NULL CHECK (amount BETWEEN 1 AND 9007199254740992),
    UNIQUE (tenant, transaction_id)
) STRICT;

CREATE TABLE IF NOT EXISTS payments_entries (
    tenant    TEXT    NOT NULL,
    kind      TEXT    NOT NULL CHECK (kind IN ('charge', 'transfer', 'bank')),
    -- The id of the charge, transfer or bank transaction that moved the money.
    reference TEXT    NOT NULL,
    side      TEXT    NOT NULL CHECK (side IN ('debit', 'credit')),
    account   TEXT    NOT NULL,
    -- Tells the outside from an account of a tenant that happens to be called `card`.
    external  INTEGER NOT NULL CHECK (external IN (0, 1)),
    amount    INTEGER NOT NULL CHECK (abs(amount) BETWEEN 1 AND 9007199254740992),
    currency  TEXT    NOT NULL,
    PRIMARY KEY (tenant, kind, reference, side),
    CHECK ((side = 'debit') = (amount < 0))
) STRICT, WITHOUT ROWID;

-- What there is of each article. An order takes from it in its first step, and gives back what it cannot pay for.
CREATE TABLE IF NOT EXISTS payments_stock (
    tenant   TEXT    NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 255),
    sku      TEXT    NOT NULL CHECK (octet_length(sku) BETWEEN 1 AND 64 AND sku NOT GLOB '*[^A-Za-z0-9_.-]*'),
    quantity INTEGER NOT NULL CHECK (quantity BETWEEN 0 AND 9007199254740992),
    PRIMARY KEY (tenant, sku)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS payments_orders (
    tenant   TEXT    NOT NULL,
    id       TEXT    NOT NULL CHECK (octet_length(id) BETWEEN 1 AND 64 AND id NOT GLOB '*[^A-Za-z0-9_.-]*'),
    account  TEXT    NOT NULL,
    sku      TEXT    NOT NULL,
    quantity INTEGER NOT NULL CHECK (quantity BETWEEN 1 AND 9007199254740992),
    amount   INTEGER NOT NULL CHECK (amount BETWEEN 1 AND 9007199254740992),
    currency TEXT    NOT NULL,
    referrer TEXT,
    -- `pending` while its flow is under way, `failed` once it was undone.
    status   TEXT    NOT NULL CHECK (status IN ('pending', 'completed', 'failed')),
    -- The card processor's own id. Cards are nowhere in these tables.
    charge   TEXT    CHECK (octet_length(charge) BETWEEN 1 AND 255),
    PRIMARY KEY (tenant, id),
    CHECK ((status = 'completed') = (charge IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- What consumers make of the service's events, in one commit with the proof that they have seen them. Each consumer has
-- rows of its own, and each of its generations too: history that is run again makes the same once more, beside the old.

CREATE TABLE IF NOT EXISTS payments_receipts (
    consumer   TEXT    NOT NULL,
    generation INTEGER NOT NULL,
    tenant     TEXT    NOT NULL,
    charge     TEXT    NOT NULL,
    account    TEXT    NOT NULL,
    amount     INTEGER NOT NULL,
    currency   TEXT    NOT NULL,
    -- How often it was issued: a charge whose event applied twice is seen here rather than refused.
    issued     INTEGER NOT NULL,
    PRIMARY KEY (consumer, generation, tenant, charge)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS payments_balances (
    consumer   TEXT    NOT NULL,
    generation INTEGER NOT NULL,
    tenant     TEXT    NOT NULL,
    account    TEXT    NOT NULL,
    currency   TEXT    NOT NULL,
    -- The sum of the changes. A dead letter may leave it below zero until it is applied.
    amount     INTEGER NOT NULL,
    -- The last version of the account that was added, and how many were: another number means one lost or added twice.
    version    INTEGER NOT NULL,
    applied    INTEGER NOT NULL,
    PRIMARY KEY (consumer, generation, tenant, account)
) STRICT, WITHOUT ROWID;
