SELECT w.wal_bytes::bigint, w.wal_records, w.wal_fpi, pg_snapshot_xmax(pg_current_snapshot())::text::bigint
FROM pg_stat_wal w
