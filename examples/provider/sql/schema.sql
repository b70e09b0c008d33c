-- What the provider remembers. All of it survives a kill.
--
-- executions is the witness: a row for everything that was done, written in the transaction that stored the answer, and
-- never touched again. keys are what repeats are recognised by; forgetting one changes no execution. requests counts
-- what arrived, executed or not. The others decide how the provider behaves.

CREATE TABLE IF NOT EXISTS executions (
    sequence       INTEGER PRIMARY KEY AUTOINCREMENT,
    id             TEXT    NOT NULL UNIQUE,
    kind           TEXT    NOT NULL CHECK (kind IN ('charge', 'refund', 'mail')),
    -- What came with the request, also where keys are ignored.
    key            TEXT    CHECK (octet_length(key) BETWEEN 1 AND 255),
    request        TEXT    NOT NULL CHECK (json_valid(request)),
    outcome        TEXT    NOT NULL CHECK (outcome IN ('succeeded', 'declined')),
    result         TEXT    NOT NULL CHECK (json_valid(result)),
    executed_at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX IF NOT EXISTS executions_by_key ON executions (key) WHERE key IS NOT NULL;

CREATE TRIGGER IF NOT EXISTS executions_are_not_changed BEFORE UPDATE ON executions
BEGIN
    SELECT raise(ABORT, 'an execution is never changed');
END;

CREATE TRIGGER IF NOT EXISTS executions_are_not_removed BEFORE DELETE ON executions
BEGIN
    SELECT raise(ABORT, 'an execution is never removed');
END;

CREATE TABLE IF NOT EXISTS keys (
    -- The card processor and the mailer have keys of their own.
    desk           TEXT    NOT NULL CHECK (desk IN ('cards', 'mails')),
    key            TEXT    NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255),
    kind           TEXT    NOT NULL,
    request        TEXT    NOT NULL,
    status         INTEGER NOT NULL CHECK (status BETWEEN 200 AND 599),
    body           TEXT    NOT NULL,
    -- The window of a key begins when it first arrives.
    received_at_ms INTEGER NOT NULL,
    PRIMARY KEY (desk, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS requests (
    path     TEXT    NOT NULL,
    -- Empty where none came along.
    key      TEXT    NOT NULL,
    received INTEGER NOT NULL CHECK (received > 0),
    PRIMARY KEY (path, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS settings (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    keys     TEXT    NOT NULL CHECK (json_valid(keys)),
    look_up  INTEGER NOT NULL CHECK (look_up IN (0, 1))
) STRICT;

CREATE TABLE IF NOT EXISTS faults (
    sequence  INTEGER PRIMARY KEY AUTOINCREMENT,
    kind      TEXT    NOT NULL CHECK (kind IN ('charge', 'refund', 'mail')),
    fault     TEXT    NOT NULL CHECK (json_valid(fault)),
    every     INTEGER NOT NULL CHECK (every > 0),
    -- How many requests have passed it, and how often it will still strike.
    seen      INTEGER NOT NULL DEFAULT 0,
    remaining INTEGER NOT NULL CHECK (remaining >= 0)
) STRICT;

CREATE TABLE IF NOT EXISTS dice (
    kind   TEXT    PRIMARY KEY CHECK (kind IN ('charge', 'refund', 'mail')),
    chosen TEXT    NOT NULL CHECK (json_valid(chosen)),
    thrown INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS webhooks (
    id        TEXT    PRIMARY KEY,
    url       TEXT    NOT NULL,
    body      TEXT    NOT NULL CHECK (json_valid(body)),
    -- How often it is still to be sent.
    remaining INTEGER NOT NULL CHECK (remaining BETWEEN 0 AND 2)
) STRICT, WITHOUT ROWID;
