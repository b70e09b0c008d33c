-- The inbox: what consumers have seen, committed together with what it did.
--
-- semel_consumers gives each consumer a number by its first acceptance, and every proof begins with that number and a
-- generation: a new generation has seen nothing. There are three kinds of proof. semel_inbox has a row per message that
-- its producer's id tells from others; they are deleted in batches once they are old enough. semel_marks has a row per
-- lane of Semel's own events and semel_offsets one per partition of Kafka, and both are kept for ever.
--
-- semel_versions says up to which version the entities have come whose messages carry one.

CREATE TABLE semel_consumers (
    id         INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    CONSTRAINT semel_consumers_once UNIQUE (name),
    CONSTRAINT semel_consumers_name CHECK (
        length(CAST(name AS BLOB)) BETWEEN 1 AND 255
        AND name NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        AND instr(name, char(0)) = 0
    )
) STRICT;

CREATE TABLE semel_inbox (
    consumer    INTEGER NOT NULL,
    generation  INTEGER NOT NULL,
    message_id  TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    PRIMARY KEY (consumer, generation, message_id),
    CONSTRAINT semel_inbox_generation CHECK (generation BETWEEN 0 AND 2147483647),
    CONSTRAINT semel_inbox_message_id CHECK (
        length(CAST(message_id AS BLOB)) BETWEEN 1 AND 255
        AND message_id NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        AND instr(message_id, char(0)) = 0
    )
) STRICT, WITHOUT ROWID;

-- What is forgotten first. It grows at each consumer's end.
CREATE INDEX semel_inbox_received_at ON semel_inbox (consumer, received_at);

CREATE TABLE semel_marks (
    consumer    INTEGER NOT NULL,
    generation  INTEGER NOT NULL,
    -- Which history of the producer's database the sequences count in.
    incarnation TEXT    NOT NULL,
    topic       TEXT    NOT NULL,
    lane        INTEGER NOT NULL,
    -- The sequences that were seen, as ranges that do not touch: first-last,first-last. The first of them ends at the
    -- contiguous mark; each further one follows a hole.
    applied     TEXT    NOT NULL,
    PRIMARY KEY (consumer, generation, incarnation, topic, lane),
    CONSTRAINT semel_marks_generation CHECK (generation BETWEEN 0 AND 2147483647),
    CONSTRAINT semel_marks_incarnation CHECK (
        length(CAST(incarnation AS BLOB)) BETWEEN 1 AND 255
        AND incarnation NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        AND instr(incarnation, char(0)) = 0
    ),
    CONSTRAINT semel_marks_topic CHECK (
        length(CAST(topic AS BLOB)) BETWEEN 1 AND 255
        AND topic NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        AND instr(topic, char(0)) = 0
    ),
    CONSTRAINT semel_marks_lane CHECK (lane BETWEEN 0 AND 32767),
    -- A thousand ranges of two numbers of nineteen digits.
    CONSTRAINT semel_marks_applied CHECK (length(applied) BETWEEN 3 AND 39999 AND applied NOT GLOB '*[^0-9,-]*')
) STRICT, WITHOUT ROWID;

CREATE TABLE semel_offsets (
    consumer   INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    source     TEXT    NOT NULL,
    topic      TEXT    NOT NULL,
    partition  INTEGER NOT NULL,
    -- Where reading goes on.
    next       INTEGER NOT NULL,
    PRIMARY KEY (consumer, generation, source, topic, partition),
    CONSTRAINT semel_offsets_generation CHECK (generation BETWEEN 0 AND 2147483647),
    CONSTRAINT semel_offsets_source CHECK (
        length(CAST(source AS BLOB)) BETWEEN 1 AND 255
        AND source NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        AND instr(source, char(0)) = 0
    ),
    CONSTRAINT semel_offsets_topic CHECK (
        length(CAST(topic AS BLOB)) BETWEEN 1 AND 255
        AND topic NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        AND instr(topic, char(0)) = 0
    ),
    CONSTRAINT semel_offsets_partition CHECK (partition BETWEEN 0 AND 2147483647),
    CONSTRAINT semel_offsets_next CHECK (next >= 1)
) STRICT, WITHOUT ROWID;

CREATE TABLE semel_versions (
    consumer   INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    entity     TEXT    NOT NULL,
    -- The last that was applied.
    version    INTEGER NOT NULL,
    PRIMARY KEY (consumer, generation, entity),
    CONSTRAINT semel_versions_generation CHECK (generation BETWEEN 0 AND 2147483647),
    CONSTRAINT semel_versions_entity CHECK (
        length(CAST(entity AS BLOB)) BETWEEN 1 AND 255
        AND entity NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        AND instr(entity, char(0)) = 0
    ),
    CONSTRAINT semel_versions_version CHECK (version >= 1)
) STRICT, WITHOUT ROWID;
