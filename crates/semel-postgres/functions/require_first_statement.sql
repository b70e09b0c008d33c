-- Above READ COMMITTED the snapshot is taken by the first statement and never renewed, so a claim that comes later
-- would judge by an old picture. Any earlier statement that read or wrote a table has left a lock on it.
CREATE OR REPLACE FUNCTION semel.require_first_statement() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_relation regclass;
BEGIN
    SELECT l.relation::regclass INTO v_relation
    FROM pg_catalog.pg_locks l
    JOIN pg_catalog.pg_class c ON c.oid = l.relation
    WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation'
      AND c.relnamespace NOT IN ('semel'::regnamespace, 'pg_catalog'::regnamespace)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'semel.claim must be the first statement of a % transaction, but this one has used % before',
            upper(current_setting('transaction_isolation')), v_relation
            USING ERRCODE = 'SM003', HINT = 'Call semel.claim right after BEGIN.';
    END IF;
END
$$;
