-- All slots that there will ever be. Nothing is attached while the outbox is in use: a session that is planning a query
-- at that moment may keep the list of partitions that it was reading, and look past the new one from then on.
--
-- Nobody uses the tables while these are attached, so that no session reads a list meanwhile. Whoever waits for that
-- keeps emitters waiting too, so it is given up after a while: run the migration again when no transaction is open for
-- long.
SELECT set_config('lock_timeout', '10s', true);
-- The next step's first, in the order in which services use them.
LOCK TABLE semel.keys IN ACCESS EXCLUSIVE MODE;
LOCK TABLE ONLY semel.events, ONLY semel.ticks, ONLY semel.positions IN ACCESS EXCLUSIVE MODE;

DO $$
DECLARE
    v_slot  integer;
    v_table text;
BEGIN
    FOR v_slot IN SELECT s FROM generate_series(0, 7) s
                  WHERE NOT EXISTS (SELECT FROM semel.slots k WHERE k.slot = s) LOOP
        FOREACH v_table IN ARRAY ARRAY['events', 'ticks', 'positions'] LOOP
            EXECUTE format('CREATE TABLE semel.%I PARTITION OF semel.%I FOR VALUES IN (%s) '
                           'WITH (autovacuum_enabled = false)', v_table || '_' || v_slot, v_table, v_slot);
        END LOOP;
        EXECUTE format('ALTER TABLE semel.%I SET (toast.autovacuum_enabled = false)', 'events_' || v_slot);
        INSERT INTO semel.slots (slot, state, generation) VALUES (v_slot, 'free', 0);
    END LOOP;
END
$$;

-- What a position covers follows from its tick, exactly.
ALTER TABLE semel.positions DROP COLUMN covers;

-- It returns less than it did.
DROP FUNCTION IF EXISTS semel.latest_positions();

SELECT set_config('lock_timeout', '0', true);
