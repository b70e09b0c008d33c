-- Accepts messages by the ids that their producers gave them, as semel.accept does, many at once. One answer per id, in
-- the order of the ids; of equal ones, only the first can be true.
--
-- The ids are inserted in sorted order: transactions that accept once, by this function, do not deadlock over them.
CREATE OR REPLACE FUNCTION semel.accept_ids(p_consumer text, p_generation integer, p_ids text[]) RETURNS boolean[]
LANGUAGE plpgsql VOLATILE
-- The planner would plan anew for every length of the array to do better.
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_consumer integer := semel.accepting_consumer(p_consumer, cardinality(p_ids));
    v_now      timestamptz := clock_timestamp();
    v_first    boolean[];
BEGIN
    WITH inserted AS (
        INSERT INTO semel.inbox (consumer, generation, message_id, received_at)
        SELECT v_consumer, p_generation, u.id, v_now
        FROM unnest(p_ids) AS u (id)
        ORDER BY u.id COLLATE "C"
        ON CONFLICT ON CONSTRAINT inbox_pkey DO NOTHING
        RETURNING message_id)
    SELECT array_agg(a.is_first ORDER BY a.position) INTO v_first
    -- Here and not in a WHERE, IN looks into a hash table whatever length the planner takes the array for.
    FROM (SELECT u.position,
                 u.id IN (SELECT i.message_id FROM inserted i)
                 AND row_number() OVER (PARTITION BY u.id COLLATE "C" ORDER BY u.position) = 1 AS is_first
          FROM unnest(p_ids) WITH ORDINALITY AS u (id, position)) a;
    RETURN coalesce(v_first, '{}');
END
$$;
