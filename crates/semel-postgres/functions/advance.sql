-- Moves the recovery point of leased work, in the fenced transaction that did the step. The lease runs on from now:
-- while the step held the row, nobody could renew it.
CREATE OR REPLACE FUNCTION semel.advance(
    p_tenant text, p_operation text, p_key text, p_execution uuid, p_epoch bigint, p_point text,
    p_lease interval, p_retain interval) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM semel.require_durable_commit();
    UPDATE semel.keys k
    SET recovery_point = p_point, lease_expires_at = clock_timestamp() + p_lease,
        expires_at = clock_timestamp() + p_retain
    WHERE k.tenant = p_tenant AND k.operation = p_operation AND k.key = p_key
      AND k.execution = p_execution AND k.epoch = p_epoch AND k.state = 'in_progress';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease was lost: epoch % is over', p_epoch USING ERRCODE = 'SM001';
    END IF;
    RETURN p_epoch;
END
$$;
