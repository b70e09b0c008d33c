-- Makes the positions of another incarnation good for this one, and writes down who did it and why in the same commit.
-- What the old positions do not cover is written anew, with ids and seqs kept; the lanes start over, and sequences
-- count from one in the new incarnation. Held events stay held; keys that are being retried get their numbers anew, and
-- so do parked ones when they are redriven. Refused with SM010 while a relay's lease runs. With p_dry_run nothing is
-- changed.
CREATE OR REPLACE FUNCTION semel.rebase(
    p_actor text, p_reason text, p_dry_run boolean DEFAULT false,
    OUT from_incarnation text, OUT to_incarnation text, OUT events bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_relay text;
BEGIN
    PERFORM pg_advisory_xact_lock(1936025957, 1);
    SELECT o.incarnation INTO from_incarnation FROM semel.outbox o FOR UPDATE;
    to_incarnation := semel.incarnation();
    PERFORM semel.require_no_prepared();
    SELECT r.name INTO v_relay FROM semel.relays r WHERE r.expires_at > clock_timestamp() LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the lease of relay % runs', v_relay USING ERRCODE = 'SM010',
            HINT = 'Stop the relays, or wait until their leases have run out.';
    END IF;
    IF from_incarnation = to_incarnation OR p_dry_run THEN
        SELECT b.events INTO events FROM semel.backlog() b;
        RETURN;
    END IF;
    DELETE FROM semel.relays;
    PERFORM semel.settle_slots();
    events := semel.reselect();
    INSERT INTO semel.incarnations (hash, name) VALUES (semel.incarnation_hash(), to_incarnation)
    ON CONFLICT (hash) DO NOTHING;
    UPDATE semel.outbox SET incarnation = to_incarnation;
    DELETE FROM semel.histories;
    UPDATE semel.held_keys SET state = 'redriving' WHERE state = 'retrying';
    -- What was counted in another incarnation has no sequence in this one until it is redriven.
    UPDATE semel.held_events SET sequence = 0;
    -- The ids that were recorded are another cluster's.
    UPDATE semel.slots SET closed_xid = NULL WHERE state = 'closed';
    INSERT INTO semel.audit (actor, action, reason) VALUES (p_actor, 'outbox rebase', p_reason);
    -- Those that the old positions do not cover, and those that were emitted since.
    SELECT b.events INTO events FROM semel.backlog() b;
END
$$;
