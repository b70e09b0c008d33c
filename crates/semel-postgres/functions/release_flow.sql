-- Lets a flow go on: it is due from now on, and the next worker resumes it whatever its policy. The epoch rises, so
-- that its last worker stays out (I7) and cannot leave it in the middle a second time. One that is due already keeps
-- its place among those who wait. Its life is before it. An operator's function has locked the key and calls it.
CREATE OR REPLACE FUNCTION semel.release_flow(p_execution uuid) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE semel.keys k
    SET epoch = k.epoch + 1, state = 'in_progress',
        lease_expires_at = CASE k.state WHEN 'unknown' THEN clock_timestamp()
                                        ELSE least(k.lease_expires_at, clock_timestamp()) END
    FROM semel.flows f
    WHERE f.execution = p_execution AND k.tenant = f.tenant AND k.operation = f.operation AND k.key = f.key
      AND k.execution = p_execution;
    UPDATE semel.flows f SET released = true, failures = 0, cause = NULL, lives_from = clock_timestamp()
    WHERE f.execution = p_execution;
END
$$;
