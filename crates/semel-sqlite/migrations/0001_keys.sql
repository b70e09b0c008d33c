-- Semel's tables in a SQLite file.
--
-- semel_keys holds one row per idempotency key that has run or is leased. A key that runs inside one transaction has no
-- row until that transaction commits, and then its row is complete: reply and effect become visible together. Only
-- leased work has a row before it is done, in the state in_progress, with a lease, an epoch that fences late workers
-- out, and the recovery point where the next worker goes on.
--
-- semel_seals remembers which sealing keys stored replies may need, and semel_audit what operators changed by hand.
-- All times are milliseconds since the Unix epoch. Every bound that the library checks is a CHECK here as well.

CREATE TABLE semel_keys (
    -- The rowid grows with every insertion, so it lists keys newest first without another index.
    id               INTEGER PRIMARY KEY,
    tenant           TEXT    NOT NULL,
    operation        TEXT    NOT NULL,
    key              TEXT    NOT NULL,
    execution        BLOB    NOT NULL,
    fingerprint      BLOB    NOT NULL,
    state            TEXT    NOT NULL,
    status           INTEGER,
    headers          BLOB,
    body             BLOB,
    sealed_by        TEXT,
    created_at       INTEGER NOT NULL,
    expires_at       INTEGER NOT NULL,
    holder           TEXT,
    epoch            INTEGER,
    recovery_point   TEXT,
    lease_expires_at INTEGER,

    CONSTRAINT semel_keys_once UNIQUE (tenant, operation, key),

    CONSTRAINT semel_keys_tenant CHECK (length(CAST(tenant AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT semel_keys_operation CHECK (length(CAST(operation AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT semel_keys_key CHECK (length(key) BETWEEN 1 AND 255 AND key NOT GLOB '*[^!-~]*'),
    CONSTRAINT semel_keys_execution CHECK (length(execution) = 16),
    CONSTRAINT semel_keys_fingerprint CHECK (length(fingerprint) = 33),
    CONSTRAINT semel_keys_state CHECK (state IN ('in_progress', 'completed', 'failed', 'unknown')),
    CONSTRAINT semel_keys_status CHECK (status BETWEEN 200 AND 599),
    -- Sealing adds a nonce of 24 bytes and a tag of 16.
    CONSTRAINT semel_keys_headers CHECK (length(headers) <= 16384 + 40),
    CONSTRAINT semel_keys_body CHECK (length(body) <= 16777216 + 40),
    CONSTRAINT semel_keys_sealed_by CHECK (length(sealed_by) BETWEEN 1 AND 64),
    CONSTRAINT semel_keys_expiry CHECK (expires_at > created_at),
    CONSTRAINT semel_keys_holder CHECK (length(CAST(holder AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT semel_keys_epoch CHECK (epoch >= 1),
    CONSTRAINT semel_keys_recovery_point CHECK (
        length(recovery_point) BETWEEN 1 AND 100 AND recovery_point NOT GLOB '*[^!-~]*'
    ),
    -- A reply is there exactly when the work is done.
    CONSTRAINT semel_keys_reply CHECK (
        CASE WHEN state IN ('completed', 'failed')
             THEN status IS NOT NULL AND headers IS NOT NULL AND body IS NOT NULL
             ELSE status IS NULL AND headers IS NULL AND body IS NULL AND sealed_by IS NULL
        END
    ),
    -- A lease is there exactly while leased work is not done; for unknown work it tells who held it last. The epoch of
    -- work that is done stays: it tells the worker that ended it from one that lost it.
    CONSTRAINT semel_keys_lease CHECK (
        CASE WHEN state IN ('in_progress', 'unknown')
             THEN holder IS NOT NULL AND epoch IS NOT NULL AND lease_expires_at IS NOT NULL
             ELSE holder IS NULL AND lease_expires_at IS NULL AND recovery_point IS NULL
        END
    )
) STRICT;

-- What the reaper walks: work in progress never expires.
CREATE INDEX semel_keys_expires_at ON semel_keys (expires_at) WHERE state <> 'in_progress';

-- What tells how many leases ended while their work was unfinished.
CREATE INDEX semel_keys_leases ON semel_keys (lease_expires_at) WHERE state = 'in_progress';

-- What tells whether a sealing key may retire.
CREATE INDEX semel_keys_sealed_by ON semel_keys (sealed_by) WHERE sealed_by IS NOT NULL;

CREATE TABLE semel_seals (
    id TEXT NOT NULL PRIMARY KEY,
    CONSTRAINT semel_seals_id CHECK (length(id) BETWEEN 1 AND 64)
) STRICT;

CREATE TABLE semel_audit (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL,
    actor     TEXT    NOT NULL,
    action    TEXT    NOT NULL,
    tenant    TEXT    NOT NULL,
    operation TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    execution BLOB    NOT NULL,
    reason    TEXT    NOT NULL,
    CONSTRAINT semel_audit_actor CHECK (length(CAST(actor AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT semel_audit_action CHECK (length(action) BETWEEN 1 AND 64),
    CONSTRAINT semel_audit_execution CHECK (length(execution) = 16),
    CONSTRAINT semel_audit_reason CHECK (length(CAST(reason AS BLOB)) BETWEEN 1 AND 1024)
) STRICT;
