-- The secret that locks are keyed with. The session remembers it under the table's oid, because to read the table costs
-- as much as to insert a row: a schema that is made anew has another table, and so another secret. Whoever asks often
-- looks for the setting himself, and calls this when it is not there.
CREATE OR REPLACE FUNCTION semel.installation_secret() RETURNS bytea
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_secret bytea;
    v_set    text;
BEGIN
    SELECT i.secret INTO STRICT v_secret FROM semel.installation i;
    v_set := set_config('semel.secret_of_' || 'semel.installation'::regclass::oid::text, encode(v_secret, 'hex'), false);
    RETURN v_secret;
END
$$;
