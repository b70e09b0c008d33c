-- Deletes up to p_limit ids that a consumer saw longer ago than p_keep, in all of its generations, and dead letters
-- that were applied longer ago, and returns how many. A message that comes again after that applies again, so p_keep is
-- at least the longest redelivery (I9). The id of a message that waits as a dead letter stays: forgotten, the message
-- would apply by itself and once more from its letter.
--
-- It takes the oldest first and passes over rows that somebody has locked. No acceptance waits for it, save for one of
-- an id that is being deleted.
CREATE OR REPLACE FUNCTION semel.reap_inbox(p_consumer text, p_keep interval, p_limit integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- Variables, because an index cannot be searched by a volatile function.
    v_consumer integer;
    v_before   timestamptz := clock_timestamp() - p_keep;
    v_reaped   bigint;
    v_letters  bigint;
BEGIN
    SELECT c.id INTO v_consumer FROM semel.consumers c WHERE c.name = p_consumer;
    DELETE FROM semel.inbox d
    WHERE d.ctid = ANY (ARRAY(
        SELECT i.ctid FROM semel.inbox i
        WHERE i.consumer = v_consumer AND i.received_at < v_before
          AND NOT EXISTS (
              SELECT FROM semel.dead_letters l
              WHERE l.consumer = i.consumer AND l.generation = i.generation AND l.message_id = i.message_id
                AND l.state <> 'applied')
        ORDER BY i.received_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_reaped = ROW_COUNT;
    DELETE FROM semel.dead_letters d
    WHERE d.ctid = ANY (ARRAY(
        SELECT l.ctid FROM semel.dead_letters l
        WHERE l.consumer = v_consumer AND l.state = 'applied' AND l.changed_at < v_before
        LIMIT p_limit - v_reaped
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_letters = ROW_COUNT;
    RETURN v_reaped + v_letters;
END
$$;
