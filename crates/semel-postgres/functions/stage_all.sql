-- Stages jobs: flows that start if and only if this transaction commits. One element of each array per job; returns
-- their keys. After a rollback, also to a savepoint, the jobs are gone; the keys of the next ones count on as if they
-- had never been.
--
-- p_execution is the run that the keys derive from; null for that of the last claim in this transaction, or one of its
-- own. A fingerprint may be null: that of the input is taken then. A job that is not done is never forgotten; how long
-- its key is kept says the worker that takes it.
CREATE OR REPLACE FUNCTION semel.stage_all(
    p_execution uuid, p_tenants text[], p_flows text[], p_inputs bytea[], p_fingerprints bytea[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_execution   uuid := coalesce(p_execution, semel.emitting_execution());
    v_first       integer := semel.next_job(v_execution, cardinality(p_flows));
    v_incarnation bigint := semel.incarnation_hash();
    v_now         timestamptz := clock_timestamp();
    v_keys        text[];
BEGIN
    PERFORM semel.require_durable_commit();
    -- A job is a flow that nobody has begun: its lease has ended before anybody held it. It does not lie in the way of
    -- the reaper, which looks at what expires first.
    WITH jobs AS MATERIALIZED (
        SELECT j.position, j.tenant, j.flow, j.input,
               coalesce(j.fingerprint, semel.fingerprint(j.input)) AS fingerprint, gen_random_uuid() AS execution,
               semel.job_key(v_execution, v_first + j.position::integer - 1) AS key
        FROM unnest(p_tenants, p_flows, p_inputs, p_fingerprints)
             WITH ORDINALITY AS j (tenant, flow, input, fingerprint, position)),
    leased AS (
        INSERT INTO semel.keys (tenant, operation, key, execution, fingerprint, state, created_at, expires_at, holder,
                                epoch, lease_expires_at, flow)
        SELECT j.tenant, j.flow, j.key, j.execution, j.fingerprint, 'in_progress', v_now,
               v_now + interval '100 years', 'staged', 1, v_now, j.flow
        FROM jobs j),
    begun AS (
        INSERT INTO semel.flows (execution, tenant, operation, key, flow, input, begun_at, incarnation)
        SELECT j.execution, j.tenant, j.flow, j.key, j.flow, j.input, v_now, v_incarnation
        FROM jobs j)
    SELECT array_agg(j.key ORDER BY j.position) INTO v_keys FROM jobs j;
    RETURN v_keys;
END
$$;
