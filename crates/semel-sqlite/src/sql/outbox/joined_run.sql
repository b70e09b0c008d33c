-- Of the connection, and rolled back with the transaction like everything else.
CREATE TEMP TABLE IF NOT EXISTS semel_joined_run (execution BLOB NOT NULL, next_ordinal INTEGER NOT NULL)
