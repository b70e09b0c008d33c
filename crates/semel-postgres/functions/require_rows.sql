-- Fails the transaction when a deferred statement touched another number of rows than its author declared.
CREATE OR REPLACE FUNCTION semel.require_rows(p_found bigint, p_expected bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF p_found IS DISTINCT FROM p_expected THEN
        RAISE EXCEPTION 'it touched % rows instead of %', p_found, p_expected USING ERRCODE = 'SM002';
    END IF;
    RETURN p_found;
END
$$;
