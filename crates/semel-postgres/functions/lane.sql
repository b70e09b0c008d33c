-- The lane of an ordering key: the first two bytes of its SHA-256, modulo 64, the same as Lane::of in Rust. 64 divides
-- 256, so that the second byte alone decides. (In plpgsql, because a function in SQL would be planned at each call:
-- convert_to is only stable, which keeps it from being inlined.)
CREATE OR REPLACE FUNCTION semel.lane(p_ordering_key text) RETURNS smallint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN get_byte(sha256(convert_to(p_ordering_key, 'UTF8')), 1) & 63;
END
$$;
