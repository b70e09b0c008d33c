-- Reserves the next p_events numbers of a run in this transaction and returns the first. The setting that remembers
-- them goes back with a savepoint, like the events themselves. It lists runs of 36 characters and counts of 6.
CREATE OR REPLACE FUNCTION semel.next_ordinal(p_execution uuid, p_events integer) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_emitted text := coalesce(current_setting('semel.emitted', true), '');
    v_at      integer := position(p_execution::text IN v_emitted);
    v_first   integer := 0;
BEGIN
    IF v_at > 0 THEN
        v_first := substr(v_emitted, v_at + 36, 6)::integer;
    ELSE
        v_at := length(v_emitted) + 1;
    END IF;
    IF v_first + p_events > 10000 THEN
        RAISE EXCEPTION '% events', v_first + p_events USING ERRCODE = 'SM008', DETAIL = '10000',
            HINT = 'A transaction emits at most 10,000 events: split the work.';
    END IF;
    PERFORM set_config('semel.emitted', overlay(v_emitted PLACING
        p_execution::text || lpad((v_first + p_events)::text, 6, '0') FROM v_at FOR 42), true);
    RETURN v_first;
END
$$;
