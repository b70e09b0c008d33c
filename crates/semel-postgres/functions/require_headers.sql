-- Checks the headers of an event: a JSON array of [name, value], both strings. What is not would be stored and could
-- never be read again.
CREATE OR REPLACE FUNCTION semel.require_headers(p_headers text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_header json;
BEGIN
    IF json_typeof(p_headers::json) = 'array' THEN
        FOR v_header IN SELECT h FROM json_array_elements(p_headers::json) h LOOP
            EXIT WHEN json_typeof(v_header) <> 'array';
            EXIT WHEN json_array_length(v_header) <> 2;
            EXIT WHEN json_typeof(v_header -> 0) <> 'string' OR json_typeof(v_header -> 1) <> 'string';
            -- Reading them as text fails on escapes that stand for no character.
            EXIT WHEN octet_length(v_header ->> 0) = 0 OR octet_length(v_header ->> 1) IS NULL;
            v_header := NULL;
        END LOOP;
        IF v_header IS NULL THEN
            RETURN;
        END IF;
    END IF;
    RAISE EXCEPTION 'the headers of an event are a JSON array of [name, value]'
        USING ERRCODE = 'invalid_parameter_value';
END
$$;
