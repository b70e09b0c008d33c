-- Locks the key of a flow for an operator, so that neither its worker nor another operator changes anything before this
-- transaction ends. `standing` is where the flow stands, null if there is no such flow. It waits for a step that is
-- being committed.
--
-- With p_epoch, the flow is meant as somebody saw it: `refusal` says so if it has changed hands since.
CREATE OR REPLACE FUNCTION semel.lock_flow(
    p_execution uuid, p_epoch bigint DEFAULT NULL, OUT standing text, OUT refusal text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_key record;
BEGIN
    SELECT k.state, k.lease_expires_at, k.epoch INTO v_key
    FROM semel.flows f
    JOIN semel.keys k ON k.tenant = f.tenant AND k.operation = f.operation AND k.key = f.key
    WHERE f.execution = p_execution AND k.execution = p_execution
    FOR UPDATE OF k;
    -- A later statement than the one that waited.
    SELECT semel.flow_state(v_key.state, v_key.lease_expires_at, f.paused) INTO standing
    FROM semel.flows f WHERE f.execution = p_execution AND v_key.state IS NOT NULL;
    IF v_key.epoch <> p_epoch THEN
        refusal := format('it has changed hands since it was seen: its epoch is %s, not %s; look at it again',
                          v_key.epoch, p_epoch);
    END IF;
END
$$;
