-- Waits until no transaction runs this key, or lock_timeout strikes (SQLSTATE 55P03). Call it in a transaction of its
-- own and end that before claiming: above READ COMMITTED the snapshot would otherwise be older than the wait. The lock
-- is shared so that all who wait wake together.
CREATE OR REPLACE FUNCTION semel.wait(p_tenant text, p_operation text, p_key text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(semel.lock_id(p_tenant, p_operation, p_key));
END
$$;
