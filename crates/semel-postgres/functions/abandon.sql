-- Takes a lease back under which nothing was done, so that the key is new again. Work that somebody took over, or that
-- has a recovery point, is only released, and so is a flow: once begun, it is finished. Says whether the lease was
-- still held.
CREATE OR REPLACE FUNCTION semel.abandon(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_epoch bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM semel.keys k
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
      AND k.execution = p_execution AND k.epoch = p_epoch AND k.state = 'in_progress'
      AND k.epoch = 1 AND k.recovery_point IS NULL AND k.flow IS NULL;
    RETURN FOUND OR semel.release(p_tenant, p_operation, p_key, p_execution, p_epoch);
END
$$;
