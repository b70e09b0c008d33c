-- The same with one event, as semel.emit writes it, without headers. Both rows are inserted, or it fails. The subquery
-- takes the transaction's id and waits for the ordering key's lock; slot and seq are read above it, and so later.
-- $12 event id, if it is the first of its run, $13 lane.
WITH event AS (
    INSERT INTO semel.events (slot, seq, xid, incarnation, id, lane, created_at, topic, ordering_key, event_type,
                              content_type, payload, traceparent, tracestate)
    SELECT pg_sequence_last_value('semel.current_slot'), nextval('semel.event_seq'), l.xid, l.incarnation,
           CASE WHEN l.ordinal = 0 THEN $12::uuid ELSE semel.event_id($5, l.ordinal) END,
           $13::smallint, clock_timestamp(), $14::text, $15::text, $16::text, $17::text, $18::bytea, $19::text,
           $20::text
    FROM (SELECT pg_current_xact_id() AS xid,
                 pg_advisory_xact_lock(('x' || encode(substring(sha256(
                     (SELECT i.secret FROM semel.installation i) || decode('6f72646572696e67206b657920', 'hex')
                     || convert_to($15::text, 'UTF8')) FOR 8), 'hex'))::bit(64)::bigint) AS locked,
                 coalesce(nullif(current_setting('semel.incarnation', true), '')::bigint,
                          semel.incarnation_hash()) AS incarnation,
                 CASE WHEN coalesce(current_setting('semel.emitted', true), '') = ''
                      THEN (set_config('semel.emitted', $5::uuid::text || '000001', true) IS NULL)::integer
                      ELSE semel.next_ordinal($5, 1) END AS ordinal) l)
INSERT INTO semel.keys (tenant, operation, key, fingerprint, execution, state, status, headers, body, sealed_by,
                        created_at, expires_at)
VALUES ($1, $2, $3, $4,
        CASE WHEN position($5::uuid::text IN current_setting('semel.claims', true)) > 0
                  AND current_setting('synchronous_commit') IN ('on', 'remote_apply')
             THEN $5 ELSE semel.completing($5) END,
        $6, $7, $8, $9, $10, clock_timestamp(),
        clock_timestamp() + make_interval(secs => $11::bigint / 1000.0::float8))
RETURNING execution
