-- The advisory lock of a key: 64 bits of a hash that is keyed with the installation's secret, so that nobody can craft
-- two keys that share a lock. Should two collide by chance, one of them is told to retry; no result is ever mixed up.
CREATE OR REPLACE FUNCTION semel.lock_id(p_tenant text, p_operation text, p_key text) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
    v_hash bytea;
BEGIN
    SELECT sha256(i.secret
        || int4send(octet_length(p_tenant)) || convert_to(p_tenant, 'UTF8')
        || int4send(octet_length(p_operation)) || convert_to(p_operation, 'UTF8')
        || convert_to(p_key, 'UTF8'))
    INTO STRICT v_hash
    FROM semel.installation i;
    RETURN ('x' || encode(substring(v_hash FROM 1 FOR 8), 'hex'))::bit(64)::bigint;
END
$$;
