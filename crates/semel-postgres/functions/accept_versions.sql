-- Compares the versions that messages carry with the last ones applied to their entities. Call it for messages that
-- have just been accepted as new, in the same transaction. One element of each array per message and one answer, in
-- their order; several messages of one entity count one after the other.
--
-- 'first'  apply it. p_each false: its version is newer than the last, gaps do not matter. p_each true: it is the next.
-- 'stale'  the entity is past it: apply nothing. It counts as seen after the commit.
-- 'early'  the entity is not there yet (p_each only): roll back to before its acceptance and try it again later.
--
-- The entities' rows stay locked until the transaction ends. They are locked in sorted order: transactions that call
-- this once do not deadlock over them.
CREATE OR REPLACE FUNCTION semel.accept_versions(
    p_consumer text, p_generation integer, p_entities text[], p_versions bigint[], p_each boolean[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE
-- The planner would plan anew for every length of the arrays to do better.
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_consumer integer := semel.accepting_consumer(p_consumer, cardinality(p_entities));
    v_entity   record;
    v_known    bigint;
    v_last     bigint;
    v_at       bigint;
    v_answers  text[] := array_fill('stale'::text, ARRAY[cardinality(p_entities)]);
BEGIN
    IF (1 <= ALL (p_versions)) IS NOT TRUE OR array_position(p_each, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'versions count from one, and each is the next or the latest'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR v_entity IN
        SELECT e.entity, array_agg(e.position ORDER BY e.position) AS positions
        FROM (SELECT u.entity COLLATE "C" AS entity, u.position
              FROM unnest(p_entities) WITH ORDINALITY AS u (entity, position)) e
        GROUP BY e.entity
        ORDER BY e.entity
    LOOP
        LOOP
            -- The lock waits for whoever has the row, and what is read is there then.
            SELECT v.version INTO v_known FROM semel.versions v
            WHERE v.consumer = v_consumer AND v.generation = p_generation AND v.entity = v_entity.entity
            FOR UPDATE;
            v_last := coalesce(v_known, 0);
            FOREACH v_at IN ARRAY v_entity.positions LOOP
                IF p_versions[v_at] <= v_last THEN
                    v_answers[v_at] := 'stale';
                ELSIF p_each[v_at] AND p_versions[v_at] > v_last + 1 THEN
                    v_answers[v_at] := 'early';
                ELSE
                    v_answers[v_at] := 'first';
                    v_last := p_versions[v_at];
                END IF;
            END LOOP;
            EXIT WHEN v_last = v_known;
            IF v_known IS NULL THEN
                -- Also if nothing applies: the insert tells whether the entity is new to others, too.
                INSERT INTO semel.versions (consumer, generation, entity, version)
                VALUES (v_consumer, p_generation, v_entity.entity, v_last)
                ON CONFLICT ON CONSTRAINT versions_pkey DO NOTHING;
            ELSE
                UPDATE semel.versions v SET version = v_last
                WHERE v.consumer = v_consumer AND v.generation = p_generation AND v.entity = v_entity.entity;
            END IF;
            EXIT WHEN FOUND;
            -- Somebody else has written the row first: look again. Above READ COMMITTED that was a serialization
            -- failure.
        END LOOP;
    END LOOP;
    RETURN v_answers;
END
$$;
