-- Asks for a key whose work is a flow. Call it in a transaction of its own and commit it at once: key and flow must be
-- visible before anything runs, so that a flow which was begun is finished even if its client never comes back.
--
-- outcome 'fresh'      key and flow are inserted, with epoch 1.
-- outcome 'resume'     the former worker's lease had ended: the epoch is raised, and the flow goes on with the function
--                      and the input that are stored. Read semel.flow_journal in the same transaction.
-- outcome 'no_flow'    the key belongs to leased work that is no flow. Nothing was changed.
-- outcome 'abandoned'  it could be resumed, but this transaction is above READ COMMITTED, where what was recorded last
--                      may be out of its sight. Nothing was changed: ask again at READ COMMITTED.
-- Otherwise as semel.claim. With p_resume false, a flow that its worker left in the middle becomes 'unknown' instead:
-- see semel.take_flow.
--
-- A caller that mints p_execution may ask again after a lost answer: its own row of epoch 1 is 'fresh' to it. A row
-- that a late worker holds locked inside its fenced transaction counts as in flight: nothing here blocks.
CREATE OR REPLACE FUNCTION semel.begin_flow(
    p_tenant text, p_operation text, p_key text, p_fingerprint bytea,
    p_holder text, p_lease interval, p_retain interval, p_resume boolean, p_execution uuid,
    p_flow text, p_input bytea, p_sealed_by text,
    OUT outcome text, OUT execution uuid, OUT epoch bigint,
    OUT status smallint, OUT headers bytea, OUT body bytea, OUT sealed_by text, OUT retry_after_ms bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_claim record;
    v_key   record;
    v_now   timestamptz;
BEGIN
    PERFORM semel.require_durable_commit();
    SELECT * INTO STRICT v_claim FROM semel.claim(p_tenant, p_operation, p_key, p_fingerprint, false);
    outcome := v_claim.outcome;
    execution := v_claim.execution;
    status := v_claim.status;
    headers := v_claim.headers;
    body := v_claim.body;
    sealed_by := v_claim.sealed_by;
    retry_after_ms := v_claim.retry_after_ms;
    v_now := clock_timestamp();

    IF outcome = 'fresh' THEN
        execution := p_execution;
        epoch := 1;
        INSERT INTO semel.keys AS k (tenant, operation, key, execution, fingerprint, state, created_at, expires_at,
                                     holder, epoch, lease_expires_at, flow)
        VALUES (p_tenant, p_operation, p_key, p_execution, p_fingerprint, 'in_progress', v_now,
                v_now + p_retain, p_holder, 1, v_now + p_lease, p_flow)
        ON CONFLICT ON CONSTRAINT keys_pkey DO UPDATE
        SET execution = excluded.execution, fingerprint = excluded.fingerprint, state = excluded.state, status = NULL,
            headers = NULL, body = NULL, sealed_by = NULL, created_at = excluded.created_at,
            expires_at = excluded.expires_at, holder = excluded.holder, epoch = 1, recovery_point = NULL,
            lease_expires_at = excluded.lease_expires_at, flow = excluded.flow
        WHERE k.execution = v_claim.replaces AND k.state <> 'in_progress' AND k.expires_at <= v_now;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'another run of this key has committed' USING ERRCODE = 'SM004';
        END IF;
        IF v_claim.replaces IS NOT NULL THEN
            PERFORM semel.forget_flows(ARRAY[v_claim.replaces]::uuid[]);
        END IF;
        INSERT INTO semel.flows (execution, tenant, operation, key, flow, input, sealed_by, begun_at, incarnation)
        VALUES (p_execution, p_tenant, p_operation, p_key, p_flow, p_input, p_sealed_by, v_now,
                semel.incarnation_hash());
        RETURN;
    END IF;

    IF outcome NOT IN ('in_flight', 'unknown') THEN
        RETURN;
    END IF;

    -- A key that another transaction is claiming has no row yet.
    SELECT k.execution, k.epoch, k.state, k.flow IS NOT NULL AS is_flow INTO v_key
    FROM semel.keys k
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
    IF v_key.state IN ('in_progress', 'unknown') AND NOT v_key.is_flow THEN
        outcome := 'no_flow';
        RETURN;
    END IF;
    IF outcome = 'in_flight' THEN
        IF v_key.state = 'in_progress' AND v_key.execution = p_execution AND v_key.epoch = 1 THEN
            outcome := 'fresh';
            execution := p_execution;
            epoch := 1;
        END IF;
        RETURN;
    END IF;
    IF v_key.state = 'in_progress' AND current_setting('transaction_isolation') <> 'read committed' THEN
        outcome := 'abandoned';
        RETURN;
    END IF;

    -- An abandoned flow, or one that is held already. Whoever gets the row lock decides.
    PERFORM FROM semel.keys k
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
      AND k.state = 'in_progress' AND k.lease_expires_at <= v_now
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        SELECT CASE k.state WHEN 'in_progress' THEN 'in_flight' WHEN 'unknown' THEN 'unknown' END INTO outcome
        FROM semel.keys k WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
        IF outcome IS NULL THEN
            RAISE EXCEPTION 'the flow ended while it was asked for' USING ERRCODE = 'SM004';
        END IF;
        RETURN;
    END IF;
    SELECT t.execution, t.epoch INTO execution, epoch
    FROM semel.take_flow(p_tenant, p_operation, p_key, p_holder, p_lease, p_retain, p_resume) t;
    outcome := CASE WHEN begin_flow.epoch IS NULL THEN 'unknown' ELSE 'resume' END;
END
$$;
