CREATE TABLE semel.keys (
    -- Byte order is all we need of a collation, and it is the fastest.
    tenant           text COLLATE "C" NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 255),
    operation        text COLLATE "C" NOT NULL CHECK (octet_length(operation) BETWEEN 1 AND 255),
    -- Visible ASCII. Searching for what is not is a hundred times cheaper than matching a bounded repetition.
    key              text COLLATE "C" NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255 AND key !~ '[^!-~]'),
    execution        uuid NOT NULL,
    -- One byte of version and a SHA-256.
    fingerprint      bytea NOT NULL CHECK (octet_length(fingerprint) = 33),
    state            text COLLATE "C" NOT NULL CHECK (state IN ('in_progress', 'completed', 'failed', 'unknown')),
    -- The reply, verbatim: bytes, never jsonb, because jsonb reorders and rewrites. The bounds leave room for a nonce
    -- and a tag of 40 bytes where the reply is sealed.
    status           smallint CHECK (status BETWEEN 200 AND 599),
    headers          bytea CHECK (octet_length(headers) <= 16 * 1024 + 40),
    body             bytea CHECK (octet_length(body) <= 16 * 1024 * 1024 + 40),
    sealed_by        text COLLATE "C" CHECK (octet_length(sealed_by) BETWEEN 1 AND 64),
    created_at       timestamptz NOT NULL,
    expires_at       timestamptz NOT NULL,
    -- Leased work only.
    holder           text COLLATE "C" CHECK (octet_length(holder) BETWEEN 1 AND 255),
    epoch            bigint CHECK (epoch > 0),
    recovery_point   text COLLATE "C"
                     CHECK (octet_length(recovery_point) BETWEEN 1 AND 100 AND recovery_point !~ '[^!-~]'),
    lease_expires_at timestamptz,

    -- The judge of I2. It stands on unpartitioned storage, where uniqueness holds over all rows. The columns' order
    -- keeps keys that sort by time, such as UUIDs of version 7, in neighbouring pages.
    CONSTRAINT keys_pkey PRIMARY KEY (tenant, operation, key),
    CONSTRAINT keys_reply CHECK (
        (state IN ('completed', 'failed')) = (status IS NOT NULL AND headers IS NOT NULL AND body IS NOT NULL)),
    CONSTRAINT keys_expire_later CHECK (expires_at > created_at),
    CONSTRAINT keys_lease CHECK (
        state <> 'in_progress'
        OR (holder IS NOT NULL AND epoch IS NOT NULL AND lease_expires_at IS NOT NULL))
);

-- For the reaper. Rows are inserted in the order in which they expire, so that it grows at its right edge.
CREATE INDEX keys_expires_at ON semel.keys (expires_at);

-- For operators and for the gauge of stuck leases; empty unless work is leased.
CREATE INDEX keys_in_progress ON semel.keys (lease_expires_at) WHERE state = 'in_progress';

-- Keys come and go at a steady rate: vacuum early, so that the table's size stays near that of its live rows.
ALTER TABLE semel.keys SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);
