-- The name of the database's history: system identifier, timeline, and the ids of the database and of a table of this
-- schema. It changes when a dump is restored, into another cluster or the same, when a database is copied as a
-- template, and when a standby is promoted or a backup recovered, which begins a new timeline. A crash and restart
-- changes none.
-- It does not notice a cluster whose files were put back to an earlier state without recovery to a new timeline.
CREATE OR REPLACE FUNCTION semel.incarnation() RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT to_hex(c.system_identifier) || '-' || ltrim(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), '0')
           || '-' || d.oid || '-' || 'semel.outbox'::regclass::oid
    FROM pg_control_system() c, pg_database d
    WHERE d.datname = current_database()
$$;
