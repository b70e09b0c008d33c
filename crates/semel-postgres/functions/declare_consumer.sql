-- Registers a consumer, or finds it again, with what it recognises messages by ('id', 'sequence' or 'offset') and for
-- how long it keeps ids, and returns its generation.
--
-- SM013 if its generation recognises messages by something else: by its declaration, or, if it had none, by what it has
-- recorded. Proofs of one kind say nothing about another, so all that was applied would apply again.
CREATE OR REPLACE FUNCTION semel.declare_consumer(p_consumer text, p_recognition text, p_retention interval)
RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_id         integer := semel.accepting_consumer(p_consumer);
    v_generation integer;
    v_known      text;
BEGIN
    IF (p_recognition IN ('id', 'sequence', 'offset')) IS NOT TRUE OR p_retention IS NULL THEN
        RAISE EXCEPTION 'a consumer recognises messages by id, sequence or offset, and keeps ids for some time'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Whoever declares it at the same time waits here, and judges by what this one declared.
    SELECT c.generation, c.recognition INTO v_generation, v_known FROM semel.consumers c WHERE c.id = v_id FOR UPDATE;
    IF v_known IS NULL THEN
        v_known := CASE
            WHEN p_recognition <> 'id' AND EXISTS (
                SELECT FROM semel.inbox i WHERE i.consumer = v_id AND i.generation = v_generation) THEN 'id'
            WHEN p_recognition <> 'sequence' AND EXISTS (
                SELECT FROM semel.marks m WHERE m.consumer = v_id AND m.generation = v_generation) THEN 'sequence'
            WHEN p_recognition <> 'offset' AND EXISTS (
                SELECT FROM semel.offsets o WHERE o.consumer = v_id AND o.generation = v_generation) THEN 'offset'
        END;
    END IF;
    IF v_known <> p_recognition THEN
        RAISE EXCEPTION 'consumer % recognises messages by % in its generation %, and that says nothing about messages '
            'that are recognised by %', p_consumer, v_known, v_generation, p_recognition
            USING ERRCODE = 'SM013', HINT = format(
                'Go on by %s, or run `semel inbox replay %s`: it begins a new generation, in which all that comes '
                'applies again and the consumer may be declared anew.', v_known, p_consumer);
    END IF;
    UPDATE semel.consumers c
    SET recognition = p_recognition, retention = p_retention, declared_at = clock_timestamp()
    WHERE c.id = v_id;
    RETURN v_generation;
END
$$;
