-- The first stored tick after p_after of this incarnation, or nothing. Slots whose ticks are all older are not touched.
CREATE OR REPLACE FUNCTION semel.next_tick(p_after bigint) RETURNS SETOF semel.ticks
LANGUAGE plpgsql VOLATILE ROWS 1
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_sort = off
AS $$
DECLARE
    v_incarnation bigint := semel.incarnation_hash();
    v_slots       smallint[];
    v_newest      bigint;
    v_tick        semel.ticks;
BEGIN
    LOOP
        SELECT array_agg(s.slot) FILTER (WHERE s.ticks_upto IS NULL OR s.ticks_upto > p_after), max(s.generation)
        INTO v_slots, v_newest
        FROM semel.slots s WHERE s.state <> 'free';
        SELECT t.* INTO v_tick FROM semel.ticks t
        WHERE t.slot = ANY (v_slots) AND t.id > p_after AND t.incarnation = v_incarnation
        ORDER BY t.id
        LIMIT 1;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        -- A slot that was opened meanwhile may hold an earlier one: others store ticks, too, and slots are used again.
        EXIT WHEN NOT EXISTS (SELECT FROM semel.slots s WHERE s.generation > v_newest);
    END LOOP;
    RETURN NEXT v_tick;
END
$$;
