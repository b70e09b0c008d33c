-- Refuses to begin an incarnation while transactions of this database are prepared: events in them carry the name of
-- the one before, and would be passed over when they commit.
CREATE OR REPLACE FUNCTION semel.require_no_prepared() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_prepared_xacts p WHERE p.database = current_database()) THEN
        RAISE EXCEPTION 'transactions of this database are prepared and may hold events' USING ERRCODE = 'SM010',
            HINT = 'Commit or roll them back (see pg_prepared_xacts), then try again.';
    END IF;
END
$$;
