-- Bytes of log, and transactions that have written something.
SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint
