-- The schema `semel` holds everything that makes a service's writes count once.
--
--   semel.keys          one row per idempotency key that has run: scope, key, fingerprint, execution, reply, expiry.
--                       Written once, at the end of the transaction that did the work. Leased work alone commits a row
--                       `in_progress` first and updates it.
--   semel.seals         which keys have sealed stored replies, so that none is retired while rows need it.
--   semel.audit         who changed what by hand, and why.
--   semel.installation  a secret that keeps tenants from crafting keys which collide in the lock space.
--   semel.migrations    which of these files have been applied.
--
-- Callers use the functions, never the tables: semel.claim, semel.complete, semel.lease, semel.fence, … Each stands in
-- a file of its own, and each runs inside the caller's transaction, so that a driver in any language keeps the
-- promises.

CREATE TABLE semel.installation (
    -- A second row would split the lock space in two.
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    -- Keyed into the hash of every advisory lock.
    secret   bytea NOT NULL CHECK (octet_length(secret) = 32)
);

INSERT INTO semel.installation (secret)
VALUES (sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));
