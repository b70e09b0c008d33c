-- Lets a relay's transaction go on only while it is a member and has these lanes (I7): SM007 otherwise. The row lock is
-- kept to the commit, so that nobody can take over between this check and the write it guards. Whether the lease has
-- run out does not matter as long as nobody has taken the lanes: the row decides, not the clock.
CREATE OR REPLACE FUNCTION semel.require_relay(p_relay bigint, p_lanes smallint[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM semel.require_read_committed();
    PERFORM semel.require_incarnation();
    PERFORM FROM semel.relays r WHERE r.id = p_relay FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'relay % was given up for dead and others have its lanes', p_relay USING ERRCODE = 'SM007';
    END IF;
    -- A later statement than the one that waited for the lock, under which the relay's lanes stay its own.
    IF cardinality(p_lanes) > 0 THEN
        PERFORM FROM unnest(p_lanes) AS w (lane)
        WHERE NOT EXISTS (SELECT FROM semel.lanes l WHERE l.lane = w.lane AND l.relay = p_relay);
        IF FOUND THEN
            RAISE EXCEPTION 'relay % does not have all of these lanes', p_relay USING ERRCODE = 'SM007';
        END IF;
    END IF;
END
$$;
