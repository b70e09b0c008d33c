-- Deletes up to p_limit expired keys, with the flows that ran under them, and returns how many keys. It takes the
-- oldest first, passes over rows that somebody has locked, and never touches work in progress, so no claim ever waits
-- for it.
--
-- A batch ends with its 20th flow, because all that is recorded of a flow goes along: up to a gigabyte. So fewer than
-- p_limit does not mean that nothing is left; none does.
CREATE OR REPLACE FUNCTION semel.reap(p_limit integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- A variable, because an index cannot be searched by a volatile function.
    v_until  timestamptz := clock_timestamp();
    v_last   timestamptz;
    v_reaped bigint;
    v_flows  uuid[];
BEGIN
    -- An index of flows alone: where there are none, it is empty.
    SELECT k.expires_at INTO v_last FROM semel.keys k
    WHERE k.flow IS NOT NULL AND k.state <> 'in_progress' AND k.expires_at <= v_until
    ORDER BY k.expires_at
    OFFSET 19 LIMIT 1;
    IF FOUND THEN
        v_until := v_last;
    END IF;
    WITH reaped AS (
        DELETE FROM semel.keys d
        WHERE d.ctid = ANY (ARRAY(
            SELECT k.ctid FROM semel.keys k
            WHERE k.expires_at <= v_until AND k.state <> 'in_progress'
            ORDER BY k.expires_at
            LIMIT p_limit
            FOR UPDATE SKIP LOCKED))
        RETURNING d.execution, d.flow)
    SELECT count(*), array_agg(r.execution) FILTER (WHERE r.flow IS NOT NULL) INTO v_reaped, v_flows FROM reaped r;
    IF v_flows IS NOT NULL THEN
        PERFORM semel.forget_flows(v_flows);
    END IF;
    RETURN v_reaped;
END
$$;
