-- The id of event number p_ordinal, counted from zero, of a run: a UUID of version 8, the same as EventId::derive in
-- Rust.
CREATE OR REPLACE FUNCTION semel.event_id(p_execution uuid, p_ordinal integer) RETURNS uuid
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    v_hash bytea := sha256(
        decode('73656d656c206576656e742031', 'hex') || uuid_send(p_execution) || int4send(p_ordinal));
BEGIN
    RETURN encode(set_byte(set_byte(substring(v_hash FOR 16),
        6, get_byte(v_hash, 6) & 15 | 128), 8, get_byte(v_hash, 8) & 63 | 128), 'hex')::uuid;
END
$$;
