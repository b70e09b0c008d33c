-- What a worker's last statement needs besides its rows: the transaction that was fenced, because the row's lock is
-- gone with any other (SM001), and a commit that waits for the log. Whoever ends a step asks himself first, and calls
-- this when one of them is missing.
CREATE OR REPLACE FUNCTION semel.fencing(p_execution uuid) RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('semel.fenced', true) IS DISTINCT FROM p_execution::text THEN
        RAISE EXCEPTION 'the lease of execution % was not fenced in this transaction', p_execution
            USING ERRCODE = 'SM001';
    END IF;
    PERFORM semel.require_durable_commit();
    RETURN p_execution;
END
$$;
