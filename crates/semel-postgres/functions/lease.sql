-- Asks for a key whose work outlives one transaction. Call it in a transaction of its own and commit it at once: the
-- row `in_progress` must be visible before the work begins.
--
-- outcome 'fresh'   the row is inserted with epoch 1.
-- outcome 'resume'  the former worker's lease had expired: the epoch is raised, and the work goes on at recovery_point.
-- outcome 'flow'    the key is that of an abandoned flow, which only those who know it can go on with. Nothing was
--                   changed.
-- Otherwise as semel.claim. With p_resume false, expired work becomes 'unknown' instead. A flow that has ended and
-- expired goes with its key.
--
-- A row that a late worker holds locked inside its fenced transaction counts as in flight: nothing here blocks.
CREATE OR REPLACE FUNCTION semel.lease(
    p_tenant text, p_operation text, p_key text, p_fingerprint bytea,
    p_holder text, p_lease interval, p_retain interval, p_resume boolean DEFAULT true,
    -- Minted by a caller who wants to ask again after a lost answer: its own row of epoch 1 is 'fresh' to it.
    p_execution uuid DEFAULT gen_random_uuid(),
    OUT outcome text, OUT execution uuid, OUT epoch bigint, OUT recovery_point text,
    OUT status smallint, OUT headers bytea, OUT body bytea, OUT sealed_by text, OUT retry_after_ms bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_claim record;
    v_now   timestamptz;
    v_flow  text;
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

    IF outcome = 'in_flight' THEN
        PERFORM FROM semel.keys k
        WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
          AND k.state = 'in_progress' AND k.execution = p_execution AND k.epoch = 1;
        IF FOUND THEN
            outcome := 'fresh';
            execution := p_execution;
            epoch := 1;
        END IF;
        RETURN;
    END IF;

    IF outcome = 'fresh' THEN
        execution := p_execution;
        epoch := 1;
        INSERT INTO semel.keys AS k (tenant, operation, key, execution, fingerprint, state, created_at, expires_at,
                                     holder, epoch, lease_expires_at)
        VALUES (p_tenant, p_operation, p_key, p_execution, p_fingerprint, 'in_progress', v_now,
                v_now + p_retain, p_holder, 1, v_now + p_lease)
        ON CONFLICT ON CONSTRAINT keys_pkey DO UPDATE
        SET execution = excluded.execution, fingerprint = excluded.fingerprint, state = excluded.state, status = NULL,
            headers = NULL, body = NULL, sealed_by = NULL, created_at = excluded.created_at,
            expires_at = excluded.expires_at, holder = excluded.holder, epoch = 1, recovery_point = NULL,
            lease_expires_at = excluded.lease_expires_at, flow = NULL
        WHERE k.execution = v_claim.replaces AND k.state <> 'in_progress' AND k.expires_at <= v_now;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'another run of this key has committed' USING ERRCODE = 'SM004';
        END IF;
        IF v_claim.replaces IS NOT NULL THEN
            PERFORM semel.forget_flows(ARRAY[v_claim.replaces]::uuid[]);
        END IF;
        RETURN;
    END IF;

    IF outcome <> 'unknown' THEN
        RETURN;
    END IF;

    -- Abandoned work, or work that is held already. Whoever gets the row lock decides.
    SELECT k.flow INTO v_flow FROM semel.keys k
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
      AND k.state = 'in_progress' AND k.lease_expires_at <= v_now
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        SELECT CASE k.state WHEN 'in_progress' THEN 'in_flight' WHEN 'unknown' THEN 'unknown' END INTO outcome
        FROM semel.keys k WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
        IF outcome IS NULL THEN
            RAISE EXCEPTION 'the work ended while it was asked for' USING ERRCODE = 'SM004';
        END IF;
        RETURN;
    END IF;

    IF v_flow IS NOT NULL THEN
        outcome := 'flow';
        RETURN;
    END IF;

    IF p_resume THEN
        UPDATE semel.keys k
        SET epoch = k.epoch + 1, holder = p_holder, lease_expires_at = v_now + p_lease, expires_at = v_now + p_retain
        WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
        RETURNING 'resume', k.execution, k.epoch, k.recovery_point INTO outcome, execution, epoch, recovery_point;
    ELSE
        UPDATE semel.keys k
        SET state = 'unknown', expires_at = v_now + p_retain
        WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key;
    END IF;
END
$$;
