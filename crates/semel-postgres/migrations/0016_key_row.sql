-- The bounds of semel.keys as a function of the row. The text of a CHECK is read anew by every INSERT, at a price for
-- each column that it names, and each condition is prepared anew in every transaction: so it names none, and looks at
-- what is rarely there only where it is.
--
-- The table is locked for a moment; where somebody keeps it in use for longer than this, migrate again later.
SELECT set_config('lock_timeout', '10s', true);
LOCK TABLE semel.keys IN ACCESS EXCLUSIVE MODE;

-- It says what key_fits said of the columns, so no row has to be looked at. It stands here and is never replaced: rows
-- are in the table that it has let pass. A column that is null passes, as in any CHECK.
CREATE FUNCTION semel.key_fits(p_key semel.keys) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    v_ended  boolean := p_key.state IN ('completed', 'failed');
    v_stored boolean := p_key.status IS NOT NULL AND p_key.headers IS NOT NULL AND p_key.body IS NOT NULL;
BEGIN
    IF NOT (p_key.tenant <> '' AND octet_length(p_key.tenant) <= 255
            AND p_key.operation <> '' AND octet_length(p_key.operation) <= 255
            -- Visible ASCII. Searching for what is not is a hundred times cheaper than matching a bounded repetition.
            AND p_key.key <> '' AND octet_length(p_key.key) <= 255 AND p_key.key COLLATE "C" !~ '[^!-~]'
            -- One byte of version and a SHA-256.
            AND octet_length(p_key.fingerprint) = 33
            AND p_key.status BETWEEN 200 AND 599
            -- The bounds leave room for a nonce and a tag of 40 bytes where the reply is sealed.
            AND octet_length(p_key.headers) <= 16 * 1024 + 40
            AND octet_length(p_key.body) <= 16 * 1024 * 1024 + 40
            AND p_key.expires_at > p_key.created_at) THEN
        RETURN false;
    END IF;
    -- A reply that is not sealed, under a key that nobody has leased.
    IF v_ended AND v_stored AND p_key.sealed_by IS NULL AND p_key.holder IS NULL AND p_key.epoch IS NULL
        AND p_key.recovery_point IS NULL THEN
        RETURN true;
    END IF;
    RETURN v_ended = v_stored
        AND (v_ended OR p_key.state IN ('in_progress', 'unknown'))
        AND octet_length(p_key.sealed_by) BETWEEN 1 AND 64
        AND octet_length(p_key.holder) BETWEEN 1 AND 255
        AND p_key.epoch > 0
        AND octet_length(p_key.recovery_point) BETWEEN 1 AND 100 AND p_key.recovery_point COLLATE "C" !~ '[^!-~]'
        AND (p_key.state <> 'in_progress'
             OR (p_key.holder IS NOT NULL AND p_key.epoch IS NOT NULL AND p_key.lease_expires_at IS NOT NULL));
END
$$;

ALTER TABLE semel.keys
    DROP CONSTRAINT keys_fit,
    ADD CONSTRAINT keys_fit CHECK (semel.key_fits(keys)) NOT VALID;

DROP FUNCTION semel.key_fits(
    text, text, text, bytea, text, smallint, bytea, bytea, text, timestamptz, timestamptz, text, bigint, text,
    timestamptz);

-- It returns something else than it did.
DROP FUNCTION IF EXISTS semel.begin_claim(bigint, boolean, text, text, text, text, text, bytea);

SELECT set_config('lock_timeout', '0', true);
