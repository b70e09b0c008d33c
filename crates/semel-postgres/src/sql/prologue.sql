CREATE SCHEMA IF NOT EXISTS semel;
CREATE TABLE IF NOT EXISTS semel.migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    -- The SHA-256 of the file, so that an edited one is noticed.
    checksum   bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
