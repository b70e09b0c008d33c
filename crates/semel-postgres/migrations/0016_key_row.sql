-- The bounds of semel.keys as a function of the row. The text of a CHECK is read anew by every INSERT, at a price for
-- each column that it names, and each condition is prepared anew in every transaction: so it names none, and looks at
-- what is rarely there only where it is.
--
-- The table is locked for a moment; where somebody keeps it in use for longer than this, migrate again later.
SELECT set_config('lock_timeout', '10s', true);
LOCK TABLE semel.keys IN ACCESS EXCLUSIVE MODE;

-- The bounds of a row that is not just a reply: one that is sealed, leased or held. By itself, because an expression is
-- prepared whole, whichever part of it is needed.
CREATE FUNCTION semel.leased_key_fits(p_key semel.keys) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (p_key.state IN ('completed', 'failed')) = (num_nulls(p_key.status, p_key.headers, p_key.body) = 0)
        AND p_key.state IN ('in_progress', 'completed', 'failed', 'unknown')
        AND octet_length(p_key.sealed_by) BETWEEN 1 AND 64
        AND octet_length(p_key.holder) BETWEEN 1 AND 255
        AND p_key.epoch > 0
        AND octet_length(p_key.recovery_point) BETWEEN 1 AND 100 AND p_key.recovery_point COLLATE "C" !~ '[^!-~]'
        AND (p_key.state <> 'in_progress' OR num_nulls(p_key.holder, p_key.epoch, p_key.lease_expires_at) = 0);
END
$$;

-- It says what key_fits said of the columns, so no row has to be looked at. Both stand here and are never replaced:
-- rows are in the table that they have let pass. A column that is null passes, as in any CHECK.
CREATE FUNCTION semel.key_fits(p_key semel.keys) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN p_key.tenant <> '' AND octet_length(p_key.tenant) <= 255
        AND p_key.operation <> '' AND octet_length(p_key.operation) <= 255
        -- Visible ASCII. A bounded repetition would take a hundred times as long.
        AND p_key.key COLLATE "C" ~ '^[!-~]+$' AND octet_length(p_key.key) <= 255
        -- One byte of version and a SHA-256.
        AND octet_length(p_key.fingerprint) = 33
        AND p_key.status BETWEEN 200 AND 599
        -- The bounds leave room for a nonce and a tag of 40 bytes where the reply is sealed.
        AND octet_length(p_key.headers) <= 16 * 1024 + 40
        AND octet_length(p_key.body) <= 16 * 1024 * 1024 + 40
        AND p_key.expires_at > p_key.created_at
        AND CASE WHEN p_key.state IN ('completed', 'failed')
                      AND num_nulls(p_key.status, p_key.headers, p_key.body) = 0
                      AND num_nonnulls(p_key.sealed_by, p_key.holder, p_key.epoch, p_key.recovery_point) = 0 THEN true
                 ELSE semel.leased_key_fits(p_key) END;
END
$$;

-- Whoever may write keys goes on doing so where rights on functions are given one by one.
DO $$
DECLARE
    v_grant record;
BEGIN
    FOR v_grant IN
        SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee
        FROM pg_proc p, aclexplode(p.proacl) a
        WHERE p.pronamespace = 'semel'::regnamespace AND p.proname = 'key_fits' AND p.pronargs = 15
          AND a.grantee <> p.proowner
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION semel.key_fits(semel.keys), semel.leased_key_fits(semel.keys) TO %s',
                       v_grant.grantee);
    END LOOP;
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
