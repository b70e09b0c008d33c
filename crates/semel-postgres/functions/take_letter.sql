-- Takes a redriven letter, as the first statement of the transaction of its effect: it counts as applied if that
-- commits, and stays redriven if it does not (I6). Its id is as young as its effect then (I9). Whoever takes it
-- meanwhile waits until the transaction has ended.
--
-- 'taken'  apply it.
-- 'gone'   it is not redriven: it was applied, or nobody wants it tried. Roll back.
-- 'stale'  its entity is past the version it carries: apply nothing, and commit.
-- 'early'  its entity is not there yet. Roll back, and bury it.
CREATE OR REPLACE FUNCTION semel.take_letter(p_id bigint) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_letter   record;
    v_standing text;
BEGIN
    PERFORM semel.require_durable_commit();
    -- It waits for whoever has the row, and judges by what is there then.
    UPDATE semel.dead_letters d SET state = 'applied', changed_at = clock_timestamp()
    WHERE d.id = p_id AND d.state = 'redriven'
    RETURNING d.consumer, d.generation, d.message_id, d.entity, d.version, d.each INTO v_letter;
    IF NOT FOUND THEN
        RETURN 'gone';
    END IF;
    UPDATE semel.inbox i SET received_at = clock_timestamp()
    WHERE i.consumer = v_letter.consumer AND i.generation = v_letter.generation AND i.message_id = v_letter.message_id;
    IF v_letter.entity IS NULL THEN
        RETURN 'taken';
    END IF;
    SELECT s INTO v_standing
    FROM semel.consumers c,
         unnest(semel.accept_versions(
             c.name, v_letter.generation, ARRAY[v_letter.entity::text], ARRAY[v_letter.version::bigint],
             ARRAY[v_letter.each])) AS s
    WHERE c.id = v_letter.consumer;
    RETURN CASE v_standing WHEN 'first' THEN 'taken' ELSE v_standing END;
END
$$;
