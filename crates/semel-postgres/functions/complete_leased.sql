-- Stores the reply of leased work and ends its lease, in a fenced transaction. Returns the execution. SM001 if the
-- lease was lost (I7), SM014 if it is a flow that is to be undone.
CREATE OR REPLACE FUNCTION semel.complete_leased(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_epoch bigint,
    p_status integer, p_headers bytea, p_body bytea,
    p_retain interval DEFAULT '24 hours', p_failed boolean DEFAULT false, p_sealed_by text DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM semel.require_durable_commit();
    UPDATE semel.keys k
    SET state = CASE WHEN p_failed THEN 'failed' ELSE 'completed' END, status = p_status, headers = p_headers,
        body = p_body, sealed_by = p_sealed_by, expires_at = clock_timestamp() + p_retain, lease_expires_at = NULL
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
      AND k.execution = p_execution AND k.epoch = p_epoch AND k.state = 'in_progress';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease was lost: epoch % is over', p_epoch USING ERRCODE = 'SM001';
    END IF;
    PERFORM semel.require_wanted(p_execution);
    RETURN p_execution;
END
$$;
