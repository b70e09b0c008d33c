-- Accepts one of Semel's own events by its place, in the transaction of the consumer's effect. True: it has not been
-- seen; apply it. False: it has been seen and its effect is committed.
--
-- After the commit it counts as seen, together with the effect; after a rollback, also to a savepoint, it does not
-- (I6). The lane's row stays locked until then, so messages of one lane apply one after the other: whoever waits adds
-- to what it finds afterwards and overwrites nothing. SM011 if the sequences of the lane would form more than 1,000
-- ranges (I12).
CREATE OR REPLACE FUNCTION semel.accept_sequence(
    p_consumer text, p_incarnation text, p_topic text, p_lane smallint, p_sequence bigint,
    p_generation integer DEFAULT 0) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_consumer integer := semel.accepting_consumer(p_consumer);
    v_itself   int8multirange;
    v_applied  int8multirange;
    v_seen     boolean;
BEGIN
    IF (p_sequence > 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'sequences count from one, and this is %', p_sequence
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    v_itself := int8multirange(int8range(p_sequence, p_sequence + 1));
    LOOP
        -- It waits for whoever has the row, and judges by what is there then.
        UPDATE semel.marks m SET applied = m.applied + v_itself
        WHERE m.consumer = v_consumer AND m.generation = p_generation AND m.incarnation = p_incarnation
          AND m.topic = p_topic AND m.lane = p_lane AND NOT m.applied @> p_sequence
        RETURNING m.applied INTO v_applied;
        IF FOUND THEN
            PERFORM semel.require_few_ranges(v_applied, p_topic, p_lane);
            RETURN true;
        END IF;
        SELECT m.applied @> p_sequence INTO v_seen FROM semel.marks m
        WHERE m.consumer = v_consumer AND m.generation = p_generation AND m.incarnation = p_incarnation
          AND m.topic = p_topic AND m.lane = p_lane;
        -- What was seen stays seen, so this needs no lock.
        IF v_seen THEN
            RETURN false;
        END IF;
        IF v_seen IS NULL THEN
            INSERT INTO semel.marks (consumer, generation, incarnation, topic, lane, applied)
            VALUES (v_consumer, p_generation, p_incarnation, p_topic, p_lane, v_itself)
            ON CONFLICT ON CONSTRAINT marks_pkey DO NOTHING;
            IF FOUND THEN
                RETURN true;
            END IF;
        END IF;
        -- The row has come about in between. Above READ COMMITTED that was a serialization failure.
    END LOOP;
END
$$;
