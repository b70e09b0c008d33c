-- The key of job number p_ordinal, counted from zero, of a run: a UUID of version 8, the same as Job::key in Rust.
CREATE OR REPLACE FUNCTION semel.job_key(p_execution uuid, p_ordinal integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    v_hash bytea := sha256(decode('73656d656c206a6f622031', 'hex') || uuid_send(p_execution) || int4send(p_ordinal));
BEGIN
    RETURN encode(set_byte(set_byte(substring(v_hash FOR 16),
        6, get_byte(v_hash, 6) & 15 | 128), 8, get_byte(v_hash, 8) & 63 | 128), 'hex')::uuid::text;
END
$$;
