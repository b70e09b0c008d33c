-- What a completion needs besides its row: a claim of this transaction, because the lock of any other is gone (SM006),
-- and a commit that waits for the log. Returns the execution. Whoever completes asks himself first, and calls this when
-- one of them is missing.
CREATE OR REPLACE FUNCTION semel.completing(p_execution uuid) RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF position(p_execution::text IN coalesce(current_setting('semel.claims', true), '')) = 0 THEN
        RAISE EXCEPTION 'execution % was not claimed in this transaction', p_execution USING ERRCODE = 'SM006',
            HINT = 'Call semel.claim and semel.complete between one BEGIN and its COMMIT.';
    END IF;
    PERFORM semel.require_durable_commit();
    RETURN p_execution;
END
$$;
