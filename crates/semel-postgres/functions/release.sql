-- Ends a lease now, so that the next semel.lease takes the work over. Says whether the lease was still held.
CREATE OR REPLACE FUNCTION semel.release(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_epoch bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE semel.keys k
    SET lease_expires_at = clock_timestamp()
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
      AND k.execution = p_execution AND k.epoch = p_epoch AND k.state = 'in_progress';
    RETURN FOUND;
END
$$;
