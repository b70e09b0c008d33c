-- Stages a job: a flow that starts if and only if this transaction commits, such as a mail that follows an order.
-- Returns the key it runs under. A completer of whoever registered the flow runs it, at least once, for this tenant and
-- with this input, which is JSON in UTF-8.
--
-- The key derives from the run, that of the last claim in this transaction or one of the transaction's own, and from
-- how many jobs were staged before: Job::key in Rust. In the transaction of a step of a flow the run is that step. A
-- transaction stages at most 100 jobs (SM008). After a rollback, also to a savepoint, the job is gone.
CREATE OR REPLACE FUNCTION semel.stage(
    p_tenant text, p_flow text, p_input bytea, p_fingerprint bytea DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (semel.stage_all(NULL, ARRAY[p_tenant], ARRAY[p_flow], ARRAY[p_input], ARRAY[p_fingerprint]))[1];
END
$$;
