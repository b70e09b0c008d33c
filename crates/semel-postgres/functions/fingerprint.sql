-- The fingerprint of what a client asked for: a version byte and a SHA-256, the same as Fingerprint::of_bytes in Rust.
-- Pass the bytes that make two intents different, such as the request's body.
CREATE OR REPLACE FUNCTION semel.fingerprint(p_request bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT decode('01', 'hex')
        || sha256(int8send(5) || convert_to('bytes', 'UTF8') || int8send(octet_length(p_request)) || p_request)
$$;
