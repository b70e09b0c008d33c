-- Where a flow stands, by the row of its key: 'running', 'paused', 'due', 'held', 'completed' or 'failed'.
CREATE OR REPLACE FUNCTION semel.flow_state(p_state text, p_lease_expires_at timestamptz, p_paused boolean) RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN p_state IN ('completed', 'failed') THEN p_state
                WHEN p_state = 'unknown' THEN 'held'
                WHEN p_lease_expires_at <= clock_timestamp() THEN 'due'
                WHEN p_paused THEN 'paused'
                ELSE 'running' END
$$;
