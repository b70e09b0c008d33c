CREATE TABLE semel.audit (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor     text NOT NULL CHECK (octet_length(actor) BETWEEN 1 AND 255),
    action    text NOT NULL CHECK (octet_length(action) BETWEEN 1 AND 64),
    tenant    text,
    operation text,
    key       text,
    execution uuid,
    reason    text NOT NULL CHECK (octet_length(reason) BETWEEN 1 AND 1024)
);

-- Every id of a sealing key that a process of this installation has started with and rows may need.
CREATE TABLE semel.seals (
    id            text COLLATE "C" PRIMARY KEY CHECK (octet_length(id) BETWEEN 1 AND 64),
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
