-- What every acceptance begins with: the number of the consumer, which its first acceptance registers. The registration
-- commits or goes back with the acceptance; until then others that would register the same name wait for it.
--
-- A message is acknowledged to its broker after the commit and never comes again, so the commit must be durable.
CREATE OR REPLACE FUNCTION semel.accepting_consumer(p_consumer text, p_messages integer DEFAULT 1) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_id integer;
BEGIN
    IF p_messages > 10000 THEN
        RAISE EXCEPTION 'a batch of % messages: at most 10,000 are accepted at once', p_messages
            USING ERRCODE = 'program_limit_exceeded', HINT = 'Split the batch.';
    END IF;
    PERFORM semel.require_durable_commit();
    LOOP
        SELECT c.id INTO v_id FROM semel.consumers c WHERE c.name = p_consumer;
        EXIT WHEN FOUND;
        INSERT INTO semel.consumers (name) VALUES (p_consumer)
        ON CONFLICT ON CONSTRAINT consumers_name DO NOTHING
        RETURNING id INTO v_id;
        EXIT WHEN FOUND;
        -- Somebody else has registered it and committed: a new statement sees it. Above READ COMMITTED none does, and
        -- the insert has failed with a serialization failure.
    END LOOP;
    RETURN v_id;
END
$$;
