-- What consumers declare of themselves, and the messages that they could not apply.
--
--   semel.consumers     also says in which generation a consumer is, what it recognises messages by in that generation,
--                       and for how long it keeps ids. Consumers that were never declared are in generation 0.
--   semel.dead_letters  messages that were set aside, each whole and with the cause. Their proofs are where those of
--                       applied messages are, so that they count as seen.

ALTER TABLE semel.consumers
    ADD COLUMN generation semel.consumer_generation NOT NULL DEFAULT 0,
    -- Null until the consumer is declared, in each generation anew.
    ADD COLUMN recognition text COLLATE "C" CHECK (recognition IN ('id', 'sequence', 'offset')),
    ADD COLUMN retention interval CHECK (retention BETWEEN interval '0' AND interval '366000 days'),
    ADD COLUMN declared_at timestamptz;

-- A message that cannot be applied may be like anything, so these are bounds of size and of nothing else. Whoever
-- writes a letter cuts what is longer.
CREATE DOMAIN semel.letter_text AS text COLLATE "C" CHECK (octet_length(VALUE) <= 64 * 1024);
-- A JSON array of [name, value].
CREATE DOMAIN semel.letter_headers AS text COLLATE "C" CHECK (octet_length(VALUE) <= 1024 * 1024);
CREATE DOMAIN semel.letter_payload AS bytea CHECK (octet_length(VALUE) <= 64 * 1024 * 1024);
CREATE DOMAIN semel.letter_cause AS text CHECK (octet_length(VALUE) <= 1000);

CREATE TABLE semel.dead_letters (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer       integer NOT NULL,
    generation     semel.consumer_generation NOT NULL,
    state          text COLLATE "C" NOT NULL DEFAULT 'dead' CHECK (state IN ('dead', 'redriven', 'applied')),
    message_id     semel.letter_text NOT NULL,
    topic          semel.letter_text NOT NULL,
    ordering_key   semel.letter_text NOT NULL,
    message_type   semel.letter_text NOT NULL,
    producer       semel.letter_text NOT NULL,
    content_type   semel.letter_text NOT NULL,
    payload        semel.letter_payload NOT NULL,
    headers        semel.letter_headers,

    -- Its place among Semel's own events, if it is one.
    incarnation    semel.letter_text,
    sequence_topic semel.letter_text,
    lane           integer,
    sequence       bigint,

    -- Its place in a partition of Kafka, if it came from there.
    source         semel.letter_text,
    record_topic   semel.letter_text,
    partition      integer,
    read_from      bigint,
    record_offset  bigint,

    -- Which version of an entity it carries, if that matters, and whether versions apply each after the one before.
    entity         semel.message_name,
    version        semel.message_version,
    each           boolean,

    cause          semel.letter_cause NOT NULL,
    attempts       integer NOT NULL CHECK (attempts >= 0),
    dead_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),

    CONSTRAINT dead_letters_sequence CHECK (num_nonnulls(incarnation, sequence_topic, lane, sequence) IN (0, 4)),
    CONSTRAINT dead_letters_record CHECK (
        num_nonnulls(source, record_topic, partition, read_from, record_offset) IN (0, 5)),
    CONSTRAINT dead_letters_version CHECK (num_nonnulls(entity, version, each) IN (0, 3))
);

-- For consumers, who look for their redriven ones all the time.
CREATE INDEX dead_letters_state ON semel.dead_letters (consumer, state, id);

ALTER TABLE semel.audit
    ADD COLUMN consumer text COLLATE "C",
    ADD COLUMN letter bigint;
