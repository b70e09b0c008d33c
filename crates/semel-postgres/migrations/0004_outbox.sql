-- The outbox: events that are written in the transaction that made them happen, and what relays need to publish them in
-- order, with numbers that never change.
--
--   semel.events        one row per event, written at the end of its transaction. Never updated, never deleted.
--   semel.ticks         stored snapshots. An event belongs to the first tick that sees its transaction.
--   semel.positions     how far each lane has come, and what it has counted. The row with the highest id counts.
--   semel.slots         the partitions that these three share. They are written one after the other and truncated whole
--                       when everything in them is published and old enough, so nothing here leaves dead rows behind.
--   semel.current_slot  a sequence whose value is the slot that is written: a sequence shows its value of now to any
--                       snapshot.
--   semel.relays        who publishes, and until when its lease runs. The id is the fencing token.
--   semel.lanes         which relay has which hash partition of the ordering keys.
--   semel.histories     from which position on a lane's events are still there; all are, if it has no row.
--   semel.outbox        which incarnation of the database the positions count in.
--   semel.incarnations  the incarnations whose events have been dealt with, now or by a rebase.
--   semel.held_keys     ordering keys whose first event was refused.
--   semel.held_events   the events of those keys, with the sequences they were given.
--   semel.redriven      events that were published with another sequence than their place says, while they are kept.
--
-- Services call semel.emit or semel.emit_all; the other functions are the relays'.

-- Bounds stand in domains, which are compiled once per session. A CHECK of a table is read and planned anew by every
-- INSERT, which costs more than the rest of it.
CREATE DOMAIN semel.event_name AS text COLLATE "C"
    CHECK (octet_length(VALUE) BETWEEN 1 AND 255 AND VALUE !~ '[\x01-\x1f\x7f]');
CREATE DOMAIN semel.event_payload AS bytea CHECK (octet_length(VALUE) <= 1024 * 1024);
-- A JSON array of [name, value]. 8 KiB of headers take at most twice as much when every character is escaped.
CREATE DOMAIN semel.event_headers AS text COLLATE "C" CHECK (octet_length(VALUE) <= 2 * 8 * 1024 + 2);
CREATE DOMAIN semel.trace_context AS text COLLATE "C"
    CHECK (octet_length(VALUE) BETWEEN 1 AND 1024 AND VALUE !~ '[\x01-\x1f\x7f]');
-- A JSON object of topic and count.
CREATE DOMAIN semel.lane_counts AS text COLLATE "C" CHECK (octet_length(VALUE) <= 4 * 1024 * 1024);
CREATE DOMAIN semel.lane_number AS smallint CHECK (VALUE BETWEEN 0 AND 63);

-- It orders events of one ordering key, because it is drawn under that key's lock. A cache would hand out blocks to
-- sessions and break that.
CREATE SEQUENCE semel.event_seq CACHE 1;
CREATE SEQUENCE semel.tick_id CACHE 1;
CREATE SEQUENCE semel.position_id CACHE 1;
CREATE SEQUENCE semel.relay_id CACHE 1;
CREATE SEQUENCE semel.current_slot AS smallint MINVALUE 0 MAXVALUE 63 START 0 CACHE 1;
SELECT setval('semel.current_slot', 0, true);

CREATE TABLE semel.events (
    slot         smallint NOT NULL,
    seq          bigint NOT NULL,
    -- The transaction's own id. A row's xmin would be that of a savepoint.
    xid          xid8 NOT NULL,
    -- 64 bits of the hash of the incarnation's name.
    incarnation  bigint NOT NULL,
    id           uuid NOT NULL,
    lane         semel.lane_number NOT NULL,
    created_at   timestamptz NOT NULL,
    topic        semel.event_name NOT NULL,
    ordering_key semel.event_name NOT NULL,
    event_type   semel.event_name NOT NULL,
    content_type semel.event_name NOT NULL,
    payload      semel.event_payload NOT NULL,
    headers      semel.event_headers,
    traceparent  semel.trace_context,
    tracestate   semel.trace_context
) PARTITION BY LIST (slot);

-- Small ticks are read by transaction, large ones by walking upwards.
CREATE INDEX events_seq ON semel.events (seq);
CREATE INDEX events_xid ON semel.events (xid);

CREATE TABLE semel.ticks (
    slot        smallint NOT NULL,
    id          bigint NOT NULL,
    incarnation bigint NOT NULL,
    previous    pg_snapshot NOT NULL,
    snapshot    pg_snapshot NOT NULL,
    -- How many events it has; null if they are too many to be sorted for every page.
    events      integer,
    -- Every event of the tick has a seq above the first, which is only looked for in a large one, and up to the second.
    seq_above   bigint NOT NULL,
    seq_upto    bigint NOT NULL,
    at          timestamptz NOT NULL
) PARTITION BY LIST (slot);

CREATE INDEX ticks_id ON semel.ticks (id);

CREATE TABLE semel.positions (
    slot        smallint NOT NULL,
    id          bigint NOT NULL,
    lane        semel.lane_number NOT NULL,
    incarnation bigint NOT NULL,
    tick        bigint NOT NULL,
    seq         bigint NOT NULL,
    counts      semel.lane_counts NOT NULL,
    relay       bigint NOT NULL,
    -- Whether the counts do not follow from the position before, because held events got new sequences.
    renumbered  boolean NOT NULL,
    -- Every event of a transaction with a lower id is covered.
    covers      xid8 NOT NULL,
    at          timestamptz NOT NULL
) PARTITION BY LIST (slot);

CREATE INDEX positions_lane ON semel.positions (lane, id);

-- Rows are only ever inserted, and tables are truncated long before their transaction ids grow old: there is nothing to
-- vacuum, and a vacuum would stand in the way of the truncation.
CREATE TABLE semel.events_0 PARTITION OF semel.events FOR VALUES IN (0)
    WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false);
CREATE TABLE semel.events_1 PARTITION OF semel.events FOR VALUES IN (1)
    WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false);
CREATE TABLE semel.events_2 PARTITION OF semel.events FOR VALUES IN (2)
    WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false);
CREATE TABLE semel.ticks_0 PARTITION OF semel.ticks FOR VALUES IN (0) WITH (autovacuum_enabled = false);
CREATE TABLE semel.ticks_1 PARTITION OF semel.ticks FOR VALUES IN (1) WITH (autovacuum_enabled = false);
CREATE TABLE semel.ticks_2 PARTITION OF semel.ticks FOR VALUES IN (2) WITH (autovacuum_enabled = false);
CREATE TABLE semel.positions_0 PARTITION OF semel.positions FOR VALUES IN (0) WITH (autovacuum_enabled = false);
CREATE TABLE semel.positions_1 PARTITION OF semel.positions FOR VALUES IN (1) WITH (autovacuum_enabled = false);
CREATE TABLE semel.positions_2 PARTITION OF semel.positions FOR VALUES IN (2) WITH (autovacuum_enabled = false);

CREATE TABLE semel.slots (
    slot        smallint PRIMARY KEY CHECK (slot BETWEEN 0 AND 63),
    state       text COLLATE "C" NOT NULL CHECK (state IN ('free', 'open', 'closed')),
    -- Rises with every opening. Slots are emptied in this order.
    generation  bigint NOT NULL,
    opened_at   timestamptz,
    -- Where the sequences stood at the opening: a slot that nothing was written to need not be closed.
    opened_seq  bigint NOT NULL DEFAULT 0,
    opened_position bigint NOT NULL DEFAULT 0,
    closed_at   timestamptz,
    -- Only transactions with lower ids may have written to it. Recorded some time after the closing.
    closed_xid  xid8,
    -- No tick in it has a higher id. Known once it is closed.
    ticks_upto  bigint
);

INSERT INTO semel.slots (slot, state, generation, opened_at)
VALUES (0, 'open', 1, clock_timestamp()), (1, 'free', 0, NULL), (2, 'free', 0, NULL);

CREATE TABLE semel.relays (
    id         bigint PRIMARY KEY DEFAULT nextval('semel.relay_id'),
    name       text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 255),
    joined_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE semel.lanes (
    lane  semel.lane_number PRIMARY KEY,
    -- A relay that is gone has no lanes.
    relay bigint REFERENCES semel.relays (id) ON DELETE SET NULL
) WITH (fillfactor = 50);

INSERT INTO semel.lanes (lane) SELECT generate_series(0, 63);

CREATE TABLE semel.histories (
    lane     semel.lane_number PRIMARY KEY,
    -- Events that follow a position with this id or a higher one are still there.
    position bigint NOT NULL
);

CREATE TABLE semel.outbox (
    only_one    boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    -- Null until a relay asks for the first time.
    incarnation text COLLATE "C" CHECK (octet_length(incarnation) BETWEEN 1 AND 64)
);

INSERT INTO semel.outbox DEFAULT VALUES;

CREATE TABLE semel.incarnations (
    hash  bigint PRIMARY KEY,
    name  text COLLATE "C" NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE semel.held_keys (
    ordering_key semel.event_name PRIMARY KEY,
    lane         semel.lane_number NOT NULL,
    state        text COLLATE "C" NOT NULL CHECK (state IN ('retrying', 'parked', 'redriving')),
    attempts     integer NOT NULL CHECK (attempts >= 0),
    retry_at     timestamptz NOT NULL,
    error        text NOT NULL CHECK (octet_length(error) <= 4096),
    since        timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX held_keys_lane ON semel.held_keys (lane);

CREATE TABLE semel.held_events (
    ordering_key semel.event_name NOT NULL REFERENCES semel.held_keys,
    seq          bigint NOT NULL,
    tick         bigint NOT NULL,
    -- Zero while it has none, because it was counted in another incarnation.
    sequence     bigint NOT NULL CHECK (sequence >= 0),
    id           uuid NOT NULL,
    lane         semel.lane_number NOT NULL,
    created_at   timestamptz NOT NULL,
    topic        semel.event_name NOT NULL,
    event_type   semel.event_name NOT NULL,
    content_type semel.event_name NOT NULL,
    payload      semel.event_payload NOT NULL,
    headers      semel.event_headers,
    traceparent  semel.trace_context,
    tracestate   semel.trace_context,
    PRIMARY KEY (ordering_key, seq)
);

CREATE INDEX held_events_id ON semel.held_events (id);

CREATE TABLE semel.redriven (
    id          uuid PRIMARY KEY,
    seq         bigint NOT NULL,
    lane        semel.lane_number NOT NULL,
    incarnation bigint NOT NULL,
    sequence    bigint NOT NULL CHECK (sequence > 0)
);

ALTER TABLE semel.audit
    ADD COLUMN event uuid,
    ADD COLUMN ordering_key text COLLATE "C";

CREATE INDEX audit_event ON semel.audit (event) WHERE event IS NOT NULL;
