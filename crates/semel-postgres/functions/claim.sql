-- Asks for a key, as the first thing in the transaction that does the work.
--
-- outcome 'fresh'      nobody has run it, or it has expired: do the work, then call semel.complete with `execution` and
--                      `replaces` in this same transaction. No other transaction gets 'fresh' until this one has ended.
-- outcome 'replay'     it has run: answer with status, headers and body. End the transaction.
-- outcome 'in_flight'  another transaction is running it: answer 409. Never blocks. `retry_after_ms` is null unless the
--                      work is leased.
-- outcome 'mismatch'   the key was used with another fingerprint: answer 422.
-- outcome 'unknown'    leased work that was abandoned: answer 409.
--
-- After a rollback the key is what it was before. The lock is tried first and the row is read by a *later* statement:
-- one statement that did both would judge by a snapshot older than the lock.
CREATE OR REPLACE FUNCTION semel.claim(
    p_tenant text, p_operation text, p_key text, p_fingerprint bytea,
    -- False when the caller knows that nothing ran before in this transaction.
    p_check_first boolean DEFAULT true,
    OUT outcome text, OUT execution uuid, OUT replaces uuid,
    OUT status smallint, OUT headers bytea, OUT body bytea, OUT sealed_by text, OUT retry_after_ms bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_locked boolean;
    v_found  record;
    v_claims text;
    v_secret bytea;
BEGIN
    IF num_nulls(p_tenant, p_operation, p_key, p_fingerprint) > 0 THEN
        RAISE EXCEPTION 'semel.claim needs a tenant, an operation, a key and a fingerprint, and one of them is null'
            USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF p_check_first AND current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM semel.require_first_statement();
    END IF;

    -- The lock that semel.lock_id tells, without a call of its own.
    SELECT i.secret INTO STRICT v_secret FROM semel.installation i;
    v_locked := pg_try_advisory_xact_lock(('x' || encode(substring(sha256(v_secret
        || int4send(octet_length(convert_to(p_tenant, 'UTF8'))) || convert_to(p_tenant, 'UTF8')
        || int4send(octet_length(convert_to(p_operation, 'UTF8'))) || convert_to(p_operation, 'UTF8')
        || convert_to(p_key, 'UTF8')) FOR 8), 'hex'))::bit(64)::bigint);
    -- Whether there is a row is all that is usually asked. To read its columns costs as much again.
    PERFORM FROM semel.keys k WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
    IF FOUND OR NOT v_locked THEN
        SELECT * INTO v_found FROM semel.keys k
        WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
        -- A committed row is the truth whether or not the lock is free: another caller may hold it only to replay.
        IF FOUND AND (v_found.state = 'in_progress' OR v_found.expires_at > clock_timestamp()) THEN
            IF v_found.fingerprint <> p_fingerprint THEN
                outcome := 'mismatch';
            ELSIF v_found.state IN ('completed', 'failed') THEN
                outcome := 'replay';
                execution := v_found.execution;
                status := v_found.status;
                headers := v_found.headers;
                body := v_found.body;
                sealed_by := v_found.sealed_by;
            ELSIF v_found.state = 'in_progress' AND v_found.lease_expires_at > clock_timestamp() THEN
                outcome := 'in_flight';
                retry_after_ms := ceil(extract(epoch FROM v_found.lease_expires_at - clock_timestamp()) * 1000);
            ELSE
                outcome := 'unknown';
            END IF;
            RETURN;
        END IF;
        IF NOT v_locked THEN
            outcome := 'in_flight';
            RETURN;
        END IF;
        replaces := v_found.execution;
    END IF;
    outcome := 'fresh';
    execution := gen_random_uuid();
    -- The completion must come in this transaction, where the lock is. The setting ends with it.
    v_claims := set_config(
        'semel.claims', ltrim(concat_ws(' ', current_setting('semel.claims', true), execution)), true);
END
$$;
