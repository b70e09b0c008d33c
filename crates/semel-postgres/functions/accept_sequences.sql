-- Accepts Semel's own events by their places, as semel.accept_sequence does, many at once. One element of each array
-- per message and one answer, in their order; of equal places, only the first can be true.
--
-- The lanes' rows are locked in sorted order: transactions that accept once, by this function, do not deadlock over
-- them. Each is written once, whatever number of its sequences there are.
CREATE OR REPLACE FUNCTION semel.accept_sequences(
    p_consumer text, p_generation integer, p_incarnations text[], p_topics text[], p_lanes smallint[],
    p_sequences bigint[]) RETURNS boolean[]
LANGUAGE plpgsql VOLATILE
-- The planner would plan anew for every length of the arrays to do better.
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_consumer integer := semel.accepting_consumer(p_consumer, cardinality(p_sequences));
    v_lane     record;
    v_known    int8multirange;
    v_applied  int8multirange;
    v_any      boolean;
    v_first    boolean[] := array_fill(false, ARRAY[cardinality(p_sequences)]);
BEGIN
    IF (1 <= ALL (p_sequences)) IS NOT TRUE THEN
        RAISE EXCEPTION 'sequences count from one' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR v_lane IN
        SELECT s.incarnation, s.topic, s.lane, array_agg(s.position) AS positions, array_agg(s.sequence) AS sequences,
               range_agg(int8range(s.sequence, s.sequence + 1)) AS ranges
        -- Of equal places the first, which alone can be new.
        FROM (SELECT DISTINCT ON (1, 2, 3, 4) u.incarnation COLLATE "C" AS incarnation, u.topic COLLATE "C" AS topic,
                     u.lane, u.sequence, u.position
              FROM unnest(p_incarnations, p_topics, p_lanes, p_sequences) WITH ORDINALITY
                   AS u (incarnation, topic, lane, sequence, position)
              ORDER BY 1, 2, 3, 4, 5) s
        GROUP BY s.incarnation, s.topic, s.lane
        ORDER BY s.incarnation, s.topic, s.lane
    LOOP
        LOOP
            -- The lock waits for whoever has the row, and what is read is there then. The empty set unpacks a long
            -- value once, and not for every sequence that is looked for in it.
            SELECT m.applied + '{}'::int8multirange INTO v_known FROM semel.marks m
            WHERE m.consumer = v_consumer AND m.generation = p_generation AND m.incarnation = v_lane.incarnation
              AND m.topic = v_lane.topic AND m.lane = v_lane.lane
            FOR UPDATE;
            v_any := v_known IS NULL;
            FOR i IN 1 .. cardinality(v_lane.positions) LOOP
                IF v_known IS NULL OR NOT v_known @> v_lane.sequences[i] THEN
                    v_first[v_lane.positions[i]] := true;
                    v_any := true;
                END IF;
            END LOOP;
            EXIT WHEN NOT v_any;
            v_applied := coalesce(v_known, '{}') + v_lane.ranges;
            PERFORM semel.require_few_ranges(v_applied, v_lane.topic, v_lane.lane);
            IF v_known IS NULL THEN
                INSERT INTO semel.marks (consumer, generation, incarnation, topic, lane, applied)
                VALUES (v_consumer, p_generation, v_lane.incarnation, v_lane.topic, v_lane.lane, v_applied)
                ON CONFLICT ON CONSTRAINT marks_pkey DO NOTHING;
            ELSE
                UPDATE semel.marks m SET applied = v_applied
                WHERE m.consumer = v_consumer AND m.generation = p_generation AND m.incarnation = v_lane.incarnation
                  AND m.topic = v_lane.topic AND m.lane = v_lane.lane;
            END IF;
            EXIT WHEN FOUND;
            -- Somebody else has written the row first: look again. Above READ COMMITTED that was a serialization
            -- failure.
            FOR i IN 1 .. cardinality(v_lane.positions) LOOP
                v_first[v_lane.positions[i]] := false;
            END LOOP;
        END LOOP;
    END LOOP;
    RETURN v_first;
END
$$;
