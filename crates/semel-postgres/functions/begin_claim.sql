-- What a claim of a service's process begins with, in the flight of its BEGIN: asks for the key's lock, whose id the
-- process has computed as semel.lock_id does, sets what holds to the end of the transaction, and looks for the key's
-- row. Lock and row in one call are one message less. Callers in SQL use semel.claim.
--
-- Null, which is the usual answer, means that the caller has the lock and that the key has no row: he runs it, and
-- completes as p_execution in this same transaction. Otherwise it is a record of
--
--   locked, outcome, execution, status, headers, body, sealed_by, retry_after_ms
--
-- outcome null         the key has no row. It may be run by whoever is `locked`.
-- outcome 'expired'    the same; `execution` is that of the expired row, to be replaced.
-- any other            as semel.claim says, whoever is `locked`.
--
-- The row is read by a *later* statement than the one that got the lock, as in semel.claim. p_waits waits for the lock
-- instead of trying it. p_deadline_ms is how long the transaction may stand still from now on, and how long a locked
-- table may hold up the look, unless the role has a lock_timeout of its own. After a rollback the key is what it was
-- before.
CREATE OR REPLACE FUNCTION semel.begin_claim(
    p_lock bigint, p_waits boolean, p_execution text, p_deadline_ms text,
    p_tenant text, p_operation text, p_key text, p_fingerprint bytea) RETURNS record
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_locked boolean := CASE WHEN p_waits THEN pg_advisory_xact_lock(p_lock) IS NOT NULL
                             ELSE pg_try_advisory_xact_lock(p_lock) END;
    -- A statement_timeout counts from the next statement of the transaction, the lock's at once.
    v_set    text := set_config('semel.claims', p_execution, true)
                     || set_config('idle_in_transaction_session_timeout', p_deadline_ms, true)
                     || set_config('statement_timeout', p_deadline_ms, true)
                     || CASE WHEN current_setting('lock_timeout') = '0'
                             THEN set_config('lock_timeout', p_deadline_ms, true) END;
    -- Not the table's row type, whose columns would be looked up, and the table locked, before there is a timeout.
    v_found  record;
BEGIN
    -- Whether there is a row is all that is usually asked. To read its columns costs as much again.
    PERFORM FROM semel.keys k WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
    IF v_locked AND NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO v_found FROM semel.keys k
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
    RETURN ROW(
        v_locked,
        CASE WHEN v_found.key IS NULL THEN NULL
             WHEN v_found.state <> 'in_progress' AND v_found.expires_at <= clock_timestamp() THEN 'expired'
             WHEN v_found.fingerprint <> p_fingerprint THEN 'mismatch'
             WHEN v_found.state IN ('completed', 'failed') THEN 'replay'
             WHEN v_found.state = 'in_progress' AND v_found.lease_expires_at > clock_timestamp() THEN 'in_flight'
             ELSE 'unknown' END,
        v_found.execution, v_found.status, v_found.headers, v_found.body, v_found.sealed_by,
        ceil(extract(epoch FROM v_found.lease_expires_at - clock_timestamp()) * 1000)::bigint);
END
$$;
