-- The last stored tick of this incarnation. Before the first one stands a tick that sees nothing.
CREATE OR REPLACE FUNCTION semel.head_tick() RETURNS semel.ticks
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_sort = off
AS $$
DECLARE
    v_incarnation bigint := semel.incarnation_hash();
    v_slot        smallint;
    v_head        semel.ticks;
BEGIN
    -- The newest slot that has one; slots are few and the newest nearly always does.
    FOR v_slot IN SELECT s.slot FROM semel.slots s WHERE s.state <> 'free' ORDER BY s.generation DESC LOOP
        SELECT t.* INTO v_head FROM semel.ticks t
        WHERE t.slot = v_slot AND t.incarnation = v_incarnation
        ORDER BY t.id DESC
        LIMIT 1;
        IF FOUND THEN
            RETURN v_head;
        END IF;
    END LOOP;
    v_head.id := 0;
    v_head.snapshot := '1:1:';
    RETURN v_head;
END
$$;
