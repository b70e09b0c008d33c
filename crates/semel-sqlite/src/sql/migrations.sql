CREATE TABLE IF NOT EXISTS semel_migrations (
    version    INTEGER NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    -- SHA-256 of the migration's text, in hexadecimal.
    checksum   TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;
