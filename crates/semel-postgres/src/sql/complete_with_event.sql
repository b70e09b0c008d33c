-- The same with one event, as semel.emit writes it, without headers: both rows are inserted, or it fails. What has to
-- come first stands in the condition of a CASE. The transaction's id comes before slot and seq, as decision 3 demands,
-- and the ordering key's lock before the seq. The process knows the lock's id as long as the secret is the one it has
-- read, which that secret's table and the history of the database tell; where either is another one, the database finds
-- the id. That the run has emitted is said for whoever still emits behind this: a deferred trigger.
-- $13 event id and $23 what is said, if it is the first of its run, $14 lane, $22 lock id, $24 the table, $25 the
-- incarnation.
WITH event AS (
    INSERT INTO semel.events (slot, seq, xid, incarnation, id, lane, created_at, topic, ordering_key, event_type,
                              content_type, payload, traceparent, tracestate)
    VALUES (CASE WHEN pg_current_xact_id() IS NOT NULL THEN pg_sequence_last_value('semel.current_slot') END,
            CASE WHEN pg_current_xact_id() IS NOT NULL
                      AND CASE WHEN 'semel.installation'::regclass = $24::oid
                                    AND current_setting('semel.incarnation', true) = $25::text
                               THEN pg_advisory_xact_lock($22::bigint)
                               ELSE semel.lock_ordering_keys(ARRAY[$16::text]) END IS NOT NULL
                 THEN nextval('semel.event_seq') END,
            pg_current_xact_id(),
            coalesce(nullif(current_setting('semel.incarnation', true), '')::bigint, semel.incarnation_hash()),
            CASE WHEN current_setting('semel.emitted', true) <> ''
                 THEN semel.event_id($5, semel.next_ordinal($5, 1))
                 WHEN set_config('semel.emitted', $23::text, true) IS NOT NULL THEN $13::uuid END,
            $14::smallint, clock_timestamp(), $15::text, $16::text, $17::text, $18::text, $19::bytea, $20::text,
            $21::text))
INSERT INTO semel.keys (tenant, operation, key, fingerprint, execution, state, status, headers, body, sealed_by,
                        created_at, expires_at)
VALUES ($1, $2, $3, $4,
        CASE WHEN current_setting('semel.claims', true) = $12::text AND current_setting('synchronous_commit') = 'on'
             THEN $5::uuid ELSE semel.completing($5) END,
        $6, $7, $8, $9, $10, clock_timestamp(), clock_timestamp() + $11::interval)
RETURNING execution
