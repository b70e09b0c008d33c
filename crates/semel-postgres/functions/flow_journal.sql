-- All that is recorded of a flow at this epoch: a row for the flow itself, which has no step, then one for each of its
-- steps in the order in which they were first recorded. Ages are measured by the database's clock.
--
-- Call it at READ COMMITTED, in the transaction that took the flow over or fenced it: each look at the tables here is
-- younger than the lock, and so sees what the last worker committed.
CREATE OR REPLACE FUNCTION semel.flow_journal(p_execution uuid, p_epoch bigint)
RETURNS TABLE (
    tenant text, operation text, key text, fingerprint bytea, flow text, failures integer, unwinding bytea,
    unwinding_sealed_by text, cancelled boolean, lived_ms bigint,
    -- Whether calls may have been made that the rows do not know of: of the flow, or of the step.
    restored boolean,
    -- The input of the flow, or the result of a step, and how long ago the one began or the other was first attempted.
    kept bytea, kept_sealed_by text, age_ms bigint,
    step text, kind text, state text, provider text, derived_key text, attempts text, since_attempt_ms bigint,
    cause text)
LANGUAGE plpgsql VOLATILE STRICT AS $$
#variable_conflict use_column
DECLARE
    -- One for all ages, so that they can be compared.
    v_now         timestamptz := clock_timestamp();
    -- In which history it began.
    v_incarnation bigint;
BEGIN
    RETURN QUERY
    SELECT k.tenant::text, k.operation::text, k.key::text, k.fingerprint, f.flow::text, f.failures, f.unwinding::bytea,
           f.unwinding_sealed_by::text, f.cancelled,
           greatest((extract(epoch FROM v_now - greatest(f.lives_from, f.begun_at)) * 1000)::bigint, 0),
           f.incarnation <> semel.incarnation_hash(),
           f.input::bytea, f.sealed_by::text,
           greatest((extract(epoch FROM v_now - f.begun_at) * 1000)::bigint, 0),
           NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, f.cause::text
    FROM semel.flows f
    JOIN semel.keys k ON k.tenant = f.tenant AND k.operation = f.operation AND k.key = f.key
    WHERE f.execution = p_execution AND k.execution = p_execution AND k.epoch = p_epoch;
    SELECT f.incarnation INTO v_incarnation FROM semel.flows f WHERE f.execution = p_execution;
    RETURN QUERY
    SELECT NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::text, NULL::integer, NULL::bytea,
           NULL::text, NULL::boolean, NULL::bigint, coalesce(s.resolved_in, v_incarnation) <> semel.incarnation_hash(),
           s.result::bytea, s.sealed_by::text,
           greatest((extract(epoch FROM v_now - s.sent_at) * 1000)::bigint, 0),
           s.step::text, s.kind::text, s.state::text, s.provider::text, s.derived_key::text, s.attempts::text,
           greatest((extract(epoch FROM v_now - s.attempted_at) * 1000)::bigint, 0), s.cause::text
    FROM semel.flow_steps s
    WHERE s.execution = p_execution
    ORDER BY s.ordinal;
END
$$;
