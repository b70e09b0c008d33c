-- Deletes up to p_limit expired keys and returns how many. It takes the oldest first, passes over rows that somebody
-- has locked, and never touches work in progress, so no claim ever waits for it.
CREATE OR REPLACE FUNCTION semel.reap(p_limit integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- A variable, because an index cannot be searched by a volatile function.
    v_now    timestamptz := clock_timestamp();
    v_reaped bigint;
BEGIN
    DELETE FROM semel.keys d
    WHERE d.ctid = ANY (ARRAY(
        SELECT k.ctid FROM semel.keys k
        WHERE k.expires_at <= v_now AND k.state <> 'in_progress'
        ORDER BY k.expires_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_reaped = ROW_COUNT;
    RETURN v_reaped;
END
$$;
