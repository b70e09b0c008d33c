-- The run that events of this transaction derive their ids from: that of the last claim in it, or one of its own.
CREATE OR REPLACE FUNCTION semel.emitting_execution() RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_claims text := current_setting('semel.claims', true);
    v_own    text;
BEGIN
    IF v_claims <> '' THEN
        RETURN right(v_claims, 36)::uuid;
    END IF;
    v_own := current_setting('semel.execution', true);
    IF v_own <> '' THEN
        RETURN v_own::uuid;
    END IF;
    -- The setting ends with the transaction, or with the savepoint that it was made in.
    RETURN set_config('semel.execution', gen_random_uuid()::text, true)::uuid;
END
$$;
