-- Stores the reply of a fresh claim, as the last thing before COMMIT, and returns the execution.
--
-- After the commit, effect and reply are durable and visible together; after a rollback neither is. The row is inserted
-- once and nothing is updated. A duplicate fails on keys_pkey (or with SM004) and must be rolled back and asked again:
-- it is never swallowed. A claim of another transaction does not count (SM006): its lock is gone. An expired row is
-- replaced only if it is the one that the claim saw expired; if that was a flow, all that is recorded of it goes along.
--
-- `headers` are HTTP field lines, each `name: value` and CRLF; pass '' for none.
CREATE OR REPLACE FUNCTION semel.complete(
    p_tenant text, p_operation text, p_key text, p_fingerprint bytea, p_execution uuid, p_replaces uuid,
    p_status integer, p_headers bytea, p_body bytea,
    p_retain interval DEFAULT '24 hours', p_failed boolean DEFAULT false, p_sealed_by text DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now   timestamptz := clock_timestamp();
    v_state text;
    v_flow  boolean;
BEGIN
    IF (current_setting('semel.claims', true) = p_execution::text AND current_setting('synchronous_commit') = 'on')
        IS NOT TRUE THEN
        PERFORM semel.completing(p_execution);
    END IF;
    IF p_replaces IS NULL THEN
        INSERT INTO semel.keys (tenant, operation, key, execution, fingerprint, state, status, headers, body, sealed_by,
                                created_at, expires_at)
        VALUES (p_tenant, p_operation, p_key, p_execution, p_fingerprint,
                CASE WHEN p_failed THEN 'failed' ELSE 'completed' END, p_status, p_headers, p_body, p_sealed_by,
                v_now, v_now + p_retain);
    ELSE
        v_state := CASE WHEN p_failed THEN 'failed' ELSE 'completed' END;
        v_flow := EXISTS (
            SELECT FROM semel.keys k
            WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
              AND k.execution = p_replaces AND k.flow IS NOT NULL);
        INSERT INTO semel.keys AS k (tenant, operation, key, execution, fingerprint, state, status, headers, body,
                                     sealed_by, created_at, expires_at)
        VALUES (p_tenant, p_operation, p_key, p_execution, p_fingerprint, v_state, p_status, p_headers, p_body,
                p_sealed_by, v_now, v_now + p_retain)
        ON CONFLICT ON CONSTRAINT keys_pkey DO UPDATE
        SET execution = excluded.execution, fingerprint = excluded.fingerprint, state = excluded.state,
            status = excluded.status, headers = excluded.headers, body = excluded.body,
            sealed_by = excluded.sealed_by, created_at = excluded.created_at, expires_at = excluded.expires_at,
            holder = NULL, epoch = NULL, recovery_point = NULL, lease_expires_at = NULL, flow = NULL
        WHERE k.execution = p_replaces AND k.state <> 'in_progress' AND k.expires_at <= v_now;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'another run of this key has committed' USING ERRCODE = 'SM004',
                HINT = 'Roll back and call semel.claim again.';
        END IF;
        IF v_flow THEN
            PERFORM semel.forget_flows(ARRAY[p_replaces]);
        END IF;
    END IF;
    RETURN p_execution;
END
$$;
