-- What a claim of a service's process begins with, in the flight of its BEGIN: asks for the key's lock, whose id the
-- process has computed as semel.lock_id does, sets what holds to the end of the transaction, and reads the key's row.
-- Lock and row in one call are one message less. Callers in SQL use semel.claim.
--
-- outcome null         the key has no row. It may be run by whoever is `locked`, who completes as p_execution in this
--                      same transaction.
-- outcome 'expired'    the same; `execution` is that of the expired row, to be replaced.
-- any other            as semel.claim says, whoever is `locked`.
--
-- The row is read by a *later* statement than the one that got the lock, as in semel.claim. p_waits waits for the lock
-- instead of trying it. p_deadline_ms is how long the transaction may stand still from now on, and how long a locked
-- table may hold up the look. After a rollback the key is what it was before.
CREATE OR REPLACE FUNCTION semel.begin_claim(
    p_lock bigint, p_waits boolean, p_execution text, p_deadline_ms text,
    p_tenant text, p_operation text, p_key text, p_fingerprint bytea,
    OUT locked boolean, OUT outcome text, OUT execution uuid, OUT status smallint, OUT headers bytea, OUT body bytea,
    OUT sealed_by text, OUT retry_after_ms bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- An assignment costs a fraction of a PERFORM.
    v_set       text;
    v_unbounded boolean := current_setting('lock_timeout') = '0';
BEGIN
    IF p_waits THEN
        locked := pg_advisory_xact_lock(p_lock) IS NOT NULL;
    ELSE
        locked := pg_try_advisory_xact_lock(p_lock);
    END IF;
    v_set := set_config('semel.claims', p_execution, true);
    v_set := set_config('idle_in_transaction_session_timeout', p_deadline_ms, true);
    v_set := set_config('statement_timeout', p_deadline_ms, true);
    -- That one counts from the next statement of the transaction. This one counts at once, and ends with the look.
    IF v_unbounded THEN
        v_set := set_config('lock_timeout', p_deadline_ms, true);
    END IF;
    SELECT CASE WHEN k.state <> 'in_progress' AND k.expires_at <= clock_timestamp() THEN 'expired'
                WHEN k.fingerprint <> p_fingerprint THEN 'mismatch'
                WHEN k.state IN ('completed', 'failed') THEN 'replay'
                WHEN k.state = 'in_progress' AND k.lease_expires_at > clock_timestamp() THEN 'in_flight'
                ELSE 'unknown' END,
           k.execution, k.status, k.headers, k.body, k.sealed_by,
           ceil(extract(epoch FROM k.lease_expires_at - clock_timestamp()) * 1000)::bigint
    INTO outcome, execution, status, headers, body, sealed_by, retry_after_ms
    FROM semel.keys k
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
    IF v_unbounded THEN
        v_set := set_config('lock_timeout', '0', true);
    END IF;
END
$$;
