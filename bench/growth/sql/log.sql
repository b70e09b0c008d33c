SELECT w.wal_bytes::float8, w.wal_records::float8, w.wal_fpi::float8 FROM pg_stat_wal w
