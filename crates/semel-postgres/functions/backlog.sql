-- How many committed events no position covers yet, and since when the oldest waits. Events of the past are passed over
-- by index as long as every lane has a position, however long a transaction is open.
CREATE OR REPLACE FUNCTION semel.backlog(OUT events bigint, OUT oldest timestamptz)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
    v_floor   xid8;
    v_running xid8[];
BEGIN
    SELECT c.floor, c.running INTO v_floor, v_running FROM semel.covered_upto() c;
    -- Ids of another incarnation mean nothing here.
    IF NOT EXISTS (SELECT FROM semel.outbox o WHERE o.incarnation = semel.incarnation()) THEN
        v_floor := '0';
    END IF;
    SELECT count(*), min(u.created_at) INTO events, oldest FROM semel.uncovered() u
    WHERE u.xid >= v_floor OR u.xid = ANY (v_running);
END
$$;
