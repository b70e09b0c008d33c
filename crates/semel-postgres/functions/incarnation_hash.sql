-- The incarnation as rows carry it: 64 bits of a hash of its name, or of another incarnation's if one is given. The
-- session remembers its own, because asking costs more than writing an event; a session never outlives its
-- incarnation.
CREATE OR REPLACE FUNCTION semel.incarnation_hash(p_name text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_known text;
    v_hash  bigint;
BEGIN
    IF p_name IS NULL THEN
        v_known := current_setting('semel.incarnation', true);
        IF v_known <> '' THEN
            RETURN v_known::bigint;
        END IF;
    END IF;
    v_hash := ('x' || encode(substring(sha256(convert_to(coalesce(p_name, semel.incarnation()), 'UTF8')) FOR 8), 'hex')
        )::bit(64)::bigint;
    IF p_name IS NULL THEN
        PERFORM set_config('semel.incarnation', v_hash::text, false);
    END IF;
    RETURN v_hash;
END
$$;
