-- Refuses to go on when the positions were stored in another incarnation of the database, or in none yet: SM009, with
-- both names as the detail. semel.begin_incarnation settles it where that is safe.
CREATE OR REPLACE FUNCTION semel.require_incarnation() RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_hash  bigint := semel.incarnation_hash();
    v_known text;
BEGIN
    SELECT o.incarnation INTO v_known FROM semel.outbox o;
    IF v_known IS NULL OR semel.incarnation_hash(v_known) <> v_hash THEN
        RAISE EXCEPTION 'the outbox belongs to another incarnation of the database'
            USING ERRCODE = 'SM009', DETAIL = concat(v_known, ' ', semel.incarnation()),
            HINT = 'The database was restored or failed over: run `semel outbox rebase`.';
    END IF;
    RETURN v_hash;
END
$$;
