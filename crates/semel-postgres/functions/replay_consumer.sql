-- Begins a new generation of a consumer, in which nothing has been seen and which is not declared yet, writes down who
-- did it and why in the same commit, and returns it. Null if there is no such consumer. With p_dry_run nothing is
-- changed.
CREATE OR REPLACE FUNCTION semel.replay_consumer(
    p_consumer text, p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_id         integer;
    v_generation integer;
BEGIN
    SELECT c.id, c.generation INTO v_id, v_generation FROM semel.consumers c WHERE c.name = p_consumer FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- Whoever says itself in which generation it consumes may have been in later ones.
    v_generation := 1 + greatest(
        v_generation,
        (SELECT max(i.generation) FROM semel.inbox i WHERE i.consumer = v_id),
        (SELECT max(m.generation) FROM semel.marks m WHERE m.consumer = v_id),
        (SELECT max(o.generation) FROM semel.offsets o WHERE o.consumer = v_id),
        (SELECT max(v.generation) FROM semel.versions v WHERE v.consumer = v_id));
    IF NOT p_dry_run THEN
        PERFORM semel.require_durable_commit();
        UPDATE semel.consumers c SET generation = v_generation, recognition = NULL WHERE c.id = v_id;
        INSERT INTO semel.audit (actor, action, consumer, reason)
        VALUES (p_actor, 'inbox replay', p_consumer, p_reason);
    END IF;
    RETURN v_generation;
END
$$;
