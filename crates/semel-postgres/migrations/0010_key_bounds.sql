-- The bounds of semel.keys as one function. A CHECK of a table is read and planned anew by every INSERT, and fifteen of
-- them cost four times as much as the rest of it; the expressions of a function are planned once per session.
--
-- The table is locked for a moment; where somebody keeps it in use for longer than this, migrate again later.
SELECT set_config('lock_timeout', '10s', true);
LOCK TABLE semel.keys IN ACCESS EXCLUSIVE MODE;

-- It is what the constraints were, so no row has to be looked at. It stands here and is never replaced: rows are in the
-- table that it has let pass.
CREATE FUNCTION semel.key_fits(
    p_tenant text, p_operation text, p_key text, p_fingerprint bytea, p_state text, p_status smallint, p_headers bytea,
    p_body bytea, p_sealed_by text, p_created_at timestamptz, p_expires_at timestamptz, p_holder text, p_epoch bigint,
    p_recovery_point text, p_lease_expires_at timestamptz) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN octet_length(p_tenant) BETWEEN 1 AND 255
        AND octet_length(p_operation) BETWEEN 1 AND 255
        -- Visible ASCII. Searching for what is not is a hundred times cheaper than matching a bounded repetition.
        AND octet_length(p_key) BETWEEN 1 AND 255 AND p_key COLLATE "C" !~ '[^!-~]'
        -- One byte of version and a SHA-256.
        AND octet_length(p_fingerprint) = 33
        AND p_state IN ('in_progress', 'completed', 'failed', 'unknown')
        AND p_status BETWEEN 200 AND 599
        -- The bounds leave room for a nonce and a tag of 40 bytes where the reply is sealed.
        AND octet_length(p_headers) <= 16 * 1024 + 40
        AND octet_length(p_body) <= 16 * 1024 * 1024 + 40
        AND octet_length(p_sealed_by) BETWEEN 1 AND 64
        AND octet_length(p_holder) BETWEEN 1 AND 255
        AND p_epoch > 0
        AND octet_length(p_recovery_point) BETWEEN 1 AND 100 AND p_recovery_point COLLATE "C" !~ '[^!-~]'
        AND (p_state IN ('completed', 'failed'))
            = (p_status IS NOT NULL AND p_headers IS NOT NULL AND p_body IS NOT NULL)
        AND p_expires_at > p_created_at
        AND (p_state <> 'in_progress'
             OR (p_holder IS NOT NULL AND p_epoch IS NOT NULL AND p_lease_expires_at IS NOT NULL));
END
$$;

ALTER TABLE semel.keys
    DROP CONSTRAINT keys_tenant_check,
    DROP CONSTRAINT keys_operation_check,
    DROP CONSTRAINT keys_key_check,
    DROP CONSTRAINT keys_fingerprint_check,
    DROP CONSTRAINT keys_state_check,
    DROP CONSTRAINT keys_status_check,
    DROP CONSTRAINT keys_headers_check,
    DROP CONSTRAINT keys_body_check,
    DROP CONSTRAINT keys_sealed_by_check,
    DROP CONSTRAINT keys_holder_check,
    DROP CONSTRAINT keys_epoch_check,
    DROP CONSTRAINT keys_recovery_point_check,
    DROP CONSTRAINT keys_reply,
    DROP CONSTRAINT keys_expire_later,
    DROP CONSTRAINT keys_lease,
    ADD CONSTRAINT keys_fit CHECK (semel.key_fits(
        tenant, operation, key, fingerprint, state, status, headers, body, sealed_by, created_at, expires_at, holder,
        epoch, recovery_point, lease_expires_at)) NOT VALID;

SELECT set_config('lock_timeout', '0', true);
