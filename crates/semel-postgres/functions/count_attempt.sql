-- Counts attempt p_number, from one, of a call, in a transaction of its own, and returns how many are counted. The call
-- leaves after its commit. The first attempt records the intent: provider and derived key, which stay as they are from
-- then on (I8). One out of its turn, or of a call that is settled, is refused. SM001 if the lease was lost (I7), SM014
-- if the flow is to be undone.
--
-- Counted again after a lost answer, the last attempt moves to now, unless its end is recorded: the call leaves after
-- this answer. Nothing else changes.
--
-- p_opened is how long ago the provider's window is taken to have opened, if this is the first attempt, or the first
-- since a person found out that none of them did anything.
CREATE OR REPLACE FUNCTION semel.count_attempt(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_epoch bigint,
    p_step text, p_provider text, p_derived_key text, p_number integer, p_opened interval) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now     timestamptz;
    v_step    record;
    v_counted integer;
BEGIN
    PERFORM semel.require_durable_commit();
    PERFORM semel.fence(p_tenant, p_operation, p_key, p_execution, p_epoch, NULL);
    PERFORM semel.require_wanted(p_execution);
    -- Once the row is had: the call has not left while this waited for it.
    v_now := clock_timestamp();
    SELECT s.kind::text AS kind, s.state::text AS state, coalesce(s.attempts::text, '') AS attempts INTO v_step
    FROM semel.flow_steps s
    WHERE s.execution = p_execution AND s.step = p_step;
    v_counted := coalesce(length(v_step.attempts), 0);
    IF v_step.kind <> 'call' THEN
        RAISE EXCEPTION 'step % is recorded as a %, not as a call', p_step, v_step.kind
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF v_counted >= p_number THEN
        UPDATE semel.flow_steps s SET attempted_at = v_now
        WHERE s.execution = p_execution AND s.step = p_step AND s.state = 'pending'
          AND v_counted = p_number AND right(s.attempts, 1) = '-';
        RETURN v_counted;
    END IF;
    IF v_counted < p_number - 1 OR v_step.state <> 'pending' THEN
        RAISE EXCEPTION 'attempt % of step % cannot be counted: % are, and it is %', p_number, p_step, v_counted,
            coalesce(v_step.state, 'not recorded') USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF v_step.state IS NULL THEN
        INSERT INTO semel.flow_steps (execution, step, ordinal, kind, state, provider, derived_key, attempts,
                                      recorded_at, sent_at, attempted_at)
        VALUES (p_execution, p_step, semel.next_step(p_execution), 'call',
                'pending', p_provider, p_derived_key, '-', v_now, v_now - p_opened, v_now);
    ELSE
        UPDATE semel.flow_steps s
        SET attempts = v_step.attempts || '-', attempted_at = v_now,
            provider = coalesce(s.provider, p_provider), derived_key = coalesce(s.derived_key, p_derived_key),
            sent_at = CASE v_step.attempts WHEN '' THEN v_now - p_opened ELSE s.sent_at END
        WHERE s.execution = p_execution AND s.step = p_step;
    END IF;
    RETURN p_number;
END
$$;
