-- Joins the relays and returns the membership's id, which is its fencing token: later ones are greater.
CREATE OR REPLACE FUNCTION semel.join_relays(p_name text, p_lease interval, OUT id bigint, OUT incarnation text)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    incarnation := semel.begin_incarnation();
    -- A rebase waits for this transaction, or this one for the rebase.
    PERFORM FROM semel.outbox FOR SHARE;
    PERFORM semel.require_incarnation();
    INSERT INTO semel.relays AS r (name, expires_at) VALUES (p_name, clock_timestamp() + p_lease)
    RETURNING r.id INTO id;
END
$$;
