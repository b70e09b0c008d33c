-- The advisory lock of a key: 64 bits of a hash that is keyed with the installation's secret, so that nobody can craft
-- two keys that share a lock. Should two collide by chance, one of them is told to retry; no result is ever mixed up.
CREATE OR REPLACE FUNCTION semel.lock_id(p_tenant text, p_operation text, p_key text) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
    v_secret bytea;
BEGIN
    -- By itself: a query with parameters over a table without statistics is planned anew each time.
    SELECT i.secret INTO STRICT v_secret FROM semel.installation i;
    RETURN ('x' || encode(substring(sha256(v_secret
        || int4send(octet_length(convert_to(p_tenant, 'UTF8'))) || convert_to(p_tenant, 'UTF8')
        || int4send(octet_length(convert_to(p_operation, 'UTF8'))) || convert_to(p_operation, 'UTF8')
        || convert_to(p_key, 'UTF8')) FOR 8), 'hex'))::bit(64)::bigint;
END
$$;
