-- Reserves the next p_jobs numbers of a run in this transaction and returns the first, as semel.next_ordinal does for
-- events. The setting that remembers them goes back with a savepoint, like the jobs themselves. It lists runs of 36
-- characters and counts of 6.
CREATE OR REPLACE FUNCTION semel.next_job(p_execution uuid, p_jobs integer) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_staged text := coalesce(current_setting('semel.staged', true), '');
    v_at     integer := position(p_execution::text IN v_staged);
    v_first  integer := 0;
BEGIN
    IF v_at > 0 THEN
        v_first := substr(v_staged, v_at + 36, 6)::integer;
    ELSE
        v_at := length(v_staged) + 1;
    END IF;
    IF v_first + p_jobs > 100 THEN
        RAISE EXCEPTION '% jobs', v_first + p_jobs USING ERRCODE = 'SM008', DETAIL = '100',
            HINT = 'A transaction stages at most 100 jobs: split the work.';
    END IF;
    PERFORM set_config('semel.staged', overlay(v_staged PLACING
        p_execution::text || lpad((v_first + p_jobs)::text, 6, '0') FROM v_at FOR 42), true);
    RETURN v_first;
END
$$;
