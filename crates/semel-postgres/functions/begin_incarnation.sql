-- Makes this the incarnation that positions count in, where that is safe: when no relay has ever read in another one.
-- Then every event of another incarnation is unpublished, and comes along. Otherwise SM009: somebody has to rebase.
CREATE OR REPLACE FUNCTION semel.begin_incarnation() RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now   text := semel.incarnation();
    v_known text;
BEGIN
    SELECT o.incarnation INTO v_known FROM semel.outbox o;
    IF v_known = v_now THEN
        RETURN v_now;
    END IF;
    PERFORM pg_advisory_xact_lock(1936025957, 1);
    SELECT o.incarnation INTO v_known FROM semel.outbox o FOR UPDATE;
    IF v_known = v_now THEN
        RETURN v_now;
    END IF;
    IF EXISTS (SELECT FROM semel.ticks) OR EXISTS (SELECT FROM semel.positions) THEN
        PERFORM semel.require_incarnation();
    END IF;
    PERFORM semel.require_no_prepared();
    PERFORM semel.settle_slots();
    PERFORM semel.reselect();
    INSERT INTO semel.incarnations (hash, name) VALUES (semel.incarnation_hash(), v_now) ON CONFLICT (hash) DO NOTHING;
    UPDATE semel.outbox SET incarnation = v_now;
    RETURN v_now;
END
$$;
