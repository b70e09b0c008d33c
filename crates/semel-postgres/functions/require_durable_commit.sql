-- A reply that was acknowledged must survive a crash, so the commit waits for its log record at least on this server,
-- whatever the role or database prefers. A stronger setting is left alone.
CREATE OR REPLACE FUNCTION semel.require_durable_commit() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;
