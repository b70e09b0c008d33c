-- The first stored tick after p_after of this incarnation, or nothing. Slots whose ticks are all older are not touched.
CREATE OR REPLACE FUNCTION semel.next_tick(p_after bigint) RETURNS SETOF semel.ticks
LANGUAGE plpgsql VOLATILE ROWS 1
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_sort = off
AS $$
DECLARE
    v_incarnation bigint := semel.incarnation_hash();
    v_slots       smallint[];
BEGIN
    v_slots := ARRAY(
        SELECT s.slot FROM semel.slots s
        WHERE s.state <> 'free' AND (s.ticks_upto IS NULL OR s.ticks_upto > p_after));
    RETURN QUERY
    SELECT t.* FROM semel.ticks t
    WHERE t.slot = ANY (v_slots) AND t.id > p_after AND t.incarnation = v_incarnation
    ORDER BY t.id
    LIMIT 1;
END
$$;
