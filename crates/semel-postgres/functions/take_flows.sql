-- Takes over up to p_limit flows of this name whose leases have ended, the longest waiting first, and returns them with
-- their new epochs. Every flow is given to one caller: the key's row is locked, and what somebody has locked is passed
-- over, such as a flow whose late worker is still in its transaction. The key's advisory lock is not asked for, as
-- semel.lease does not depend on it either: a key that has a row in progress is fresh to no claim. With p_resume false,
-- flows that were left in the middle are held instead: see semel.take_flow.
--
-- Call it at READ COMMITTED, in a transaction of its own, and read semel.flow_journal in the same one.
CREATE OR REPLACE FUNCTION semel.take_flows(
    p_flow text, p_holder text, p_lease interval, p_retain interval, p_resume boolean, p_limit integer)
RETURNS TABLE (execution uuid, epoch bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    -- A variable, because an index cannot be searched by a volatile function.
    v_now   timestamptz := clock_timestamp();
    v_due   record;
    v_bytes bigint := 0;
BEGIN
    PERFORM semel.require_durable_commit();
    FOR v_due IN
        SELECT k.tenant, k.operation, k.key, k.execution
        FROM semel.keys k
        WHERE k.flow = p_flow AND k.state = 'in_progress' AND k.lease_expires_at <= v_now
        ORDER BY k.lease_expires_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    LOOP
        SELECT t.execution, t.epoch INTO execution, epoch
        FROM semel.take_flow(v_due.tenant, v_due.operation, v_due.key, p_holder, p_lease, p_retain, p_resume) t;
        CONTINUE WHEN epoch IS NULL;
        RETURN NEXT;
        -- A worker holds all that is recorded. What comes behind the first 64 MiB of it is for another time.
        SELECT v_bytes + octet_length(f.input) + coalesce((
                   SELECT sum(octet_length(s.result)) FROM semel.flow_steps s WHERE s.execution = f.execution), 0)
        INTO v_bytes
        FROM semel.flows f WHERE f.execution = v_due.execution;
        EXIT WHEN v_bytes > 64 * 1024 * 1024;
    END LOOP;
END
$$;
