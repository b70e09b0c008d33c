-- Refuses to go on above READ COMMITTED, where all statements of a transaction see one snapshot: what relays do waits
-- for a lock first and looks then.
CREATE OR REPLACE FUNCTION semel.require_read_committed() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the outbox is read at READ COMMITTED, and this transaction is %',
            upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'SM003', HINT = 'Set default_transaction_isolation to ''read committed'' for the relay.';
    END IF;
END
$$;
