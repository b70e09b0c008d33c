-- Accepts records of Kafka by their places, in the transaction of the consumer's effect. One element of each array per
-- record and one answer, in their order: true if it has not been seen, false if it lies before the stored offset.
--
-- p_froms says where the worker read on: at the stored offset, or behind the record before. The offset advances by
-- compare-and-set from there to behind the record. SM012 if it is another one: somebody else has read on in the
-- partition, and whoever stored an offset further on would make its records look seen. A partition of which nothing is
-- stored begins anywhere.
--
-- After the commit the records count as seen, together with the effects; after a rollback, also to a savepoint, they do
-- not (I6). The partitions' rows stay locked until then. They are locked in sorted order: transactions that accept
-- once, by this function, do not deadlock over them.
CREATE OR REPLACE FUNCTION semel.accept_offsets(
    p_consumer text, p_generation integer, p_sources text[], p_topics text[], p_partitions integer[], p_froms bigint[],
    p_offsets bigint[]) RETURNS boolean[]
LANGUAGE plpgsql VOLATILE
-- The planner would plan anew for every length of the arrays to do better.
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_consumer  integer := semel.accepting_consumer(p_consumer, cardinality(p_offsets));
    v_partition record;
    v_known     bigint;
    v_next      bigint;
    v_at        bigint;
    v_first     boolean[] := array_fill(false, ARRAY[cardinality(p_offsets)]);
BEGIN
    FOR v_partition IN
        SELECT o.source, o.topic, o.partition, array_agg(o.position ORDER BY o.position) AS positions
        FROM (SELECT u.source COLLATE "C" AS source, u.topic COLLATE "C" AS topic, u.partition, u.position
              FROM unnest(p_sources, p_topics, p_partitions) WITH ORDINALITY
                   AS u (source, topic, partition, position)) o
        GROUP BY o.source, o.topic, o.partition
        ORDER BY o.source, o.topic, o.partition
    LOOP
        LOOP
            -- The lock waits for whoever has the row, and what is read is there then.
            SELECT o.next INTO v_known FROM semel.offsets o
            WHERE o.consumer = v_consumer AND o.generation = p_generation AND o.source = v_partition.source
              AND o.topic = v_partition.topic AND o.partition = v_partition.partition
            FOR UPDATE;
            v_next := coalesce(v_known, p_froms[v_partition.positions[1]]);
            FOREACH v_at IN ARRAY v_partition.positions LOOP
                IF (p_froms[v_at] BETWEEN 0 AND p_offsets[v_at]) IS NOT TRUE THEN
                    RAISE EXCEPTION 'no record has offset % and was read on from %', p_offsets[v_at], p_froms[v_at]
                        USING ERRCODE = 'invalid_parameter_value';
                END IF;
                v_first[v_at] := p_offsets[v_at] >= v_next;
                CONTINUE WHEN NOT v_first[v_at];
                IF p_froms[v_at] <> v_next THEN
                    RAISE EXCEPTION 'partition % of topic % is read on at % and not at %', v_partition.partition,
                        v_partition.topic, v_next, p_froms[v_at]
                        USING ERRCODE = 'SM012', HINT = 'Somebody else has read on: roll back and seek to there.';
                END IF;
                v_next := p_offsets[v_at] + 1;
            END LOOP;
            EXIT WHEN v_next = v_known;
            IF v_known IS NULL THEN
                INSERT INTO semel.offsets (consumer, generation, source, topic, partition, next)
                VALUES (v_consumer, p_generation, v_partition.source, v_partition.topic, v_partition.partition, v_next)
                ON CONFLICT ON CONSTRAINT offsets_pkey DO NOTHING;
            ELSE
                UPDATE semel.offsets o SET next = v_next
                WHERE o.consumer = v_consumer AND o.generation = p_generation AND o.source = v_partition.source
                  AND o.topic = v_partition.topic AND o.partition = v_partition.partition;
            END IF;
            EXIT WHEN FOUND;
            -- Somebody else has written the row first: look again. Above READ COMMITTED that was a serialization
            -- failure.
        END LOOP;
    END LOOP;
    RETURN v_first;
END
$$;
