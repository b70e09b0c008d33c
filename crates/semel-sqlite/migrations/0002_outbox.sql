-- The outbox: events that were committed and wait to be published.
--
-- semel_events holds them in commit order: SQLite has one writer, so seqs are drawn in the order in which transactions
-- commit, and AUTOINCREMENT never draws one twice, not even after a deletion. A cursor is therefore a plain seq. Rows
-- are never updated; they are deleted in batches once their lane has passed them and they are old enough.
--
-- semel_lanes says how far each lane has come, what it has counted there, and which relay has it. semel_relays holds
-- the relays' leases; a relay's id is its fencing token. Keys whose first event was refused are in semel_held_keys,
-- with copies of their events in semel_held_events. The sequence of an event is nowhere stored unless it is held: it
-- follows from a lane's counts. semel_renumbered keeps the counts that do not follow from those before, and
-- semel_redriven the sequences that do not.

CREATE TABLE semel_outbox (
    id          INTEGER NOT NULL PRIMARY KEY,
    -- Which history of this file sequences count in. A copy of the file has the same, until it is rebased.
    incarnation TEXT    NOT NULL,
    -- The last seq that was drawn before this incarnation began.
    began_after INTEGER NOT NULL DEFAULT 0,
    -- Every event up to here is at or before its lane's cursor: where counting what waits begins.
    covered     INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT semel_outbox_single CHECK (id = 1),
    CONSTRAINT semel_outbox_incarnation CHECK (length(incarnation) BETWEEN 1 AND 64),
    CONSTRAINT semel_outbox_began_after CHECK (began_after >= 0),
    CONSTRAINT semel_outbox_covered CHECK (covered >= 0)
) STRICT;

INSERT INTO semel_outbox (id, incarnation) VALUES (1, lower(hex(randomblob(16))));

CREATE TABLE semel_events (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           BLOB    NOT NULL,
    lane         INTEGER NOT NULL,
    emitted_at   INTEGER NOT NULL,
    topic        TEXT    NOT NULL,
    ordering_key TEXT    NOT NULL,
    type         TEXT    NOT NULL,
    content_type TEXT    NOT NULL,
    -- A JSON array of pairs of name and value.
    headers      TEXT    NOT NULL,
    traceparent  TEXT,
    tracestate   TEXT,
    -- Last, so that what stands before it is read without it.
    payload      BLOB    NOT NULL,

    CONSTRAINT semel_events_id CHECK (length(id) = 16),
    CONSTRAINT semel_events_lane CHECK (lane BETWEEN 0 AND 63),
    CONSTRAINT semel_events_topic CHECK (
        length(CAST(topic AS BLOB)) BETWEEN 1 AND 255
        AND topic NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
    ),
    CONSTRAINT semel_events_ordering_key CHECK (
        length(CAST(ordering_key AS BLOB)) BETWEEN 1 AND 255
        AND ordering_key NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
    ),
    CONSTRAINT semel_events_type CHECK (
        length(CAST(type AS BLOB)) BETWEEN 1 AND 255
        AND type NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
    ),
    CONSTRAINT semel_events_content_type CHECK (
        length(CAST(content_type AS BLOB)) BETWEEN 1 AND 255
        AND content_type NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
    ),
    -- 8 KiB of headers take at most twice as much when every character is escaped.
    CONSTRAINT semel_events_headers CHECK (length(CAST(headers AS BLOB)) <= 16386),
    CONSTRAINT semel_events_traceparent CHECK (length(CAST(traceparent AS BLOB)) BETWEEN 1 AND 1024),
    CONSTRAINT semel_events_tracestate CHECK (length(CAST(tracestate AS BLOB)) BETWEEN 1 AND 1024),
    CONSTRAINT semel_events_payload CHECK (length(payload) <= 1048576)
) STRICT;

-- The places of the events without the events, for whoever counts them or looks for an id: it is walked, because it
-- grows at its end only, where an index that begins with the lane or the id would write another page for every event.
CREATE INDEX semel_events_places ON semel_events (seq, lane, id);

CREATE TABLE semel_relays (
    -- The fencing token: never drawn twice.
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    CONSTRAINT semel_relays_name CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 255)
) STRICT;

CREATE TABLE semel_lanes (
    lane           INTEGER NOT NULL PRIMARY KEY,
    relay          INTEGER REFERENCES semel_relays (id),
    -- The seq of the last event that was published, held or skipped.
    cursor         INTEGER NOT NULL DEFAULT 0,
    -- The last sequence per topic at the cursor, a JSON object.
    counts         TEXT    NOT NULL DEFAULT '{}',
    -- What the position was stored in, if it ever was.
    incarnation    TEXT,
    -- Where the lane stood when the last of its deleted events was counted, or when it was rebased: what comes after
    -- counts on from here, and what is before belongs to an earlier incarnation.
    history_cursor INTEGER NOT NULL DEFAULT 0,
    history_counts TEXT    NOT NULL DEFAULT '{}',

    CONSTRAINT semel_lanes_lane CHECK (lane BETWEEN 0 AND 63),
    CONSTRAINT semel_lanes_cursor CHECK (cursor >= 0),
    CONSTRAINT semel_lanes_counts CHECK (length(CAST(counts AS BLOB)) <= 4194304),
    CONSTRAINT semel_lanes_incarnation CHECK (length(incarnation) BETWEEN 1 AND 64),
    CONSTRAINT semel_lanes_history CHECK (history_cursor BETWEEN 0 AND cursor),
    CONSTRAINT semel_lanes_history_counts CHECK (length(CAST(history_counts AS BLOB)) <= 4194304)
) STRICT;

INSERT INTO semel_lanes (lane)
WITH RECURSIVE lanes (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM lanes WHERE lane < 63)
SELECT lane FROM lanes;

CREATE INDEX semel_lanes_relay ON semel_lanes (relay) WHERE relay IS NOT NULL;

CREATE TABLE semel_renumbered (
    lane   INTEGER NOT NULL,
    cursor INTEGER NOT NULL,
    counts TEXT    NOT NULL,
    PRIMARY KEY (lane, cursor),
    CONSTRAINT semel_renumbered_lane CHECK (lane BETWEEN 0 AND 63),
    CONSTRAINT semel_renumbered_cursor CHECK (cursor >= 0),
    CONSTRAINT semel_renumbered_counts CHECK (length(CAST(counts AS BLOB)) <= 4194304)
) STRICT, WITHOUT ROWID;

-- The last sequence of events that were redriven, for as long as they are kept in semel_events.
CREATE TABLE semel_redriven (
    seq      INTEGER NOT NULL PRIMARY KEY,
    lane     INTEGER NOT NULL,
    id       BLOB    NOT NULL,
    sequence INTEGER NOT NULL,
    CONSTRAINT semel_redriven_lane CHECK (lane BETWEEN 0 AND 63),
    CONSTRAINT semel_redriven_id CHECK (length(id) = 16),
    CONSTRAINT semel_redriven_sequence CHECK (sequence >= 1)
) STRICT;

CREATE INDEX semel_redriven_by_lane ON semel_redriven (lane, seq);

CREATE TABLE semel_held_keys (
    lane         INTEGER NOT NULL,
    ordering_key TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    attempts     INTEGER NOT NULL,
    retry_at     INTEGER NOT NULL,
    error        TEXT    NOT NULL,
    since        INTEGER NOT NULL,
    PRIMARY KEY (lane, ordering_key),
    CONSTRAINT semel_held_keys_lane CHECK (lane BETWEEN 0 AND 63),
    CONSTRAINT semel_held_keys_ordering_key CHECK (length(CAST(ordering_key AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT semel_held_keys_state CHECK (state IN ('retrying', 'parked', 'redriving')),
    CONSTRAINT semel_held_keys_attempts CHECK (attempts >= 0),
    CONSTRAINT semel_held_keys_error CHECK (length(CAST(error AS BLOB)) <= 1024)
) STRICT, WITHOUT ROWID;

-- What is listed, the longest held first.
CREATE INDEX semel_held_keys_since ON semel_held_keys (since);

CREATE TABLE semel_held_events (
    seq          INTEGER NOT NULL PRIMARY KEY,
    id           BLOB    NOT NULL,
    lane         INTEGER NOT NULL,
    emitted_at   INTEGER NOT NULL,
    topic        TEXT    NOT NULL,
    ordering_key TEXT    NOT NULL,
    type         TEXT    NOT NULL,
    content_type TEXT    NOT NULL,
    headers      TEXT    NOT NULL,
    traceparent  TEXT,
    tracestate   TEXT,
    -- The number it is published with.
    sequence     INTEGER NOT NULL,
    payload      BLOB    NOT NULL,
    -- No event is held without its key's row: nobody would ever try it again (I4).
    FOREIGN KEY (lane, ordering_key) REFERENCES semel_held_keys (lane, ordering_key),
    CONSTRAINT semel_held_events_id CHECK (length(id) = 16),
    -- Zero while it has none, because it was counted in another incarnation.
    CONSTRAINT semel_held_events_sequence CHECK (sequence >= 0),
    CONSTRAINT semel_held_events_payload CHECK (length(payload) <= 1048576)
) STRICT;

-- A key's events in order, the first of them first.
CREATE INDEX semel_held_events_key ON semel_held_events (lane, ordering_key);
CREATE INDEX semel_held_events_id ON semel_held_events (id);

-- What is changed by hand is no longer a key alone.
ALTER TABLE semel_audit RENAME TO semel_audit_of_keys;

CREATE TABLE semel_audit (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    at           INTEGER NOT NULL,
    actor        TEXT    NOT NULL,
    action       TEXT    NOT NULL,
    tenant       TEXT,
    operation    TEXT,
    key          TEXT,
    execution    BLOB,
    ordering_key TEXT,
    event        BLOB,
    reason       TEXT    NOT NULL,
    CONSTRAINT semel_audit_actor CHECK (length(CAST(actor AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT semel_audit_action CHECK (length(action) BETWEEN 1 AND 64),
    CONSTRAINT semel_audit_execution CHECK (length(execution) = 16),
    CONSTRAINT semel_audit_event CHECK (length(event) = 16),
    CONSTRAINT semel_audit_reason CHECK (length(CAST(reason AS BLOB)) BETWEEN 1 AND 1024)
) STRICT;

INSERT INTO semel_audit (id, at, actor, action, tenant, operation, key, execution, reason)
SELECT id, at, actor, action, tenant, operation, key, execution, reason FROM semel_audit_of_keys;

DROP TABLE semel_audit_of_keys;

CREATE INDEX semel_audit_event ON semel_audit (event) WHERE event IS NOT NULL;
