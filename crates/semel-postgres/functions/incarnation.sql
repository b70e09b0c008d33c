-- The name of the database's history: it changes when a dump is restored into another cluster, and when a standby is
-- promoted or a backup recovered, which begins a new timeline. A crash and restart changes neither.
CREATE OR REPLACE FUNCTION semel.incarnation() RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT to_hex(c.system_identifier) || '-' || ltrim(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), '0')
    FROM pg_control_system() c
$$;
