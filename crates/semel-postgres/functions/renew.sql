-- Extends a lease to p_lease from now. False if the work has ended under this very lease; SM001 if another worker took
-- over.
CREATE OR REPLACE FUNCTION semel.renew(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_epoch bigint, p_lease interval, p_retain interval)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE semel.keys k
    SET lease_expires_at = clock_timestamp() + p_lease, expires_at = clock_timestamp() + p_retain
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
      AND k.execution = p_execution AND k.epoch = p_epoch AND k.state = 'in_progress';
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM FROM semel.keys k
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
      AND k.execution = p_execution AND k.epoch = p_epoch AND k.state IN ('completed', 'failed');
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease was lost: epoch % is over', p_epoch USING ERRCODE = 'SM001';
    END IF;
    RETURN false;
END
$$;
