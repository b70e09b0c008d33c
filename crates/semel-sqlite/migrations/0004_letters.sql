-- What consumers say of themselves, and the messages that they could not apply.
--
-- semel_consumers gets the generation that a consumer is in, and what it declared for it: what it tells messages apart
-- by, and how long it keeps their ids. A new generation has declared nothing, and a consumer that never declared
-- anything is in the first.
--
-- semel_dead_letters has a row per message that was set aside. It is written in the commit that records the message as
-- seen, and it is kept until it was applied: the broker's copy is gone. A letter is dead until somebody wants it tried
-- again, then redriven, and applied in the commit of its effect. After that it goes with the ids.

ALTER TABLE semel_consumers ADD COLUMN generation INTEGER NOT NULL DEFAULT 0
    CONSTRAINT semel_consumers_generation CHECK (generation BETWEEN 0 AND 2147483647);
ALTER TABLE semel_consumers ADD COLUMN recognition TEXT
    CONSTRAINT semel_consumers_recognition CHECK (recognition IN ('id', 'sequence', 'offset'));
ALTER TABLE semel_consumers ADD COLUMN retention_ms INTEGER
    -- A thousand years at most.
    CONSTRAINT semel_consumers_retention_ms CHECK (retention_ms BETWEEN 0 AND 31622400000000);
ALTER TABLE semel_consumers ADD COLUMN declared_at INTEGER
    CONSTRAINT semel_consumers_declared_at CHECK (
        (declared_at IS NULL) = (recognition IS NULL) AND (declared_at IS NULL) = (retention_ms IS NULL)
    );

CREATE TABLE semel_dead_letters (
    -- Never drawn twice, so that an operator's id means one letter for ever.
    id                   INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer             INTEGER NOT NULL REFERENCES semel_consumers (id),
    generation           INTEGER NOT NULL,
    state                TEXT    NOT NULL,
    -- How often it was tried, and why it failed the last time.
    attempts             INTEGER NOT NULL,
    cause                TEXT    NOT NULL,
    dead_at              INTEGER NOT NULL,
    changed_at           INTEGER NOT NULL,
    -- The message. It may be here because its texts are no names, so nothing is asked of them but a size.
    message_id           TEXT    NOT NULL,
    topic                TEXT    NOT NULL,
    ordering_key         TEXT    NOT NULL,
    message_type         TEXT    NOT NULL,
    producer             TEXT    NOT NULL,
    content_type         TEXT    NOT NULL,
    -- A JSON array of pairs of name and value.
    headers              TEXT    NOT NULL,
    -- Its place among Semel's own events, if it is one.
    sequence_incarnation TEXT,
    sequence_topic       TEXT,
    sequence_lane        INTEGER,
    sequence             INTEGER,
    -- Its place in a partition of Kafka, if it came from there.
    offset_source        TEXT,
    offset_topic         TEXT,
    offset_partition     INTEGER,
    offset_from          INTEGER,
    "offset"             INTEGER,
    -- The version that it carries, if the order of versions matters: it is judged when the letter is applied.
    entity               TEXT,
    version              INTEGER,
    version_rule         TEXT,
    -- Last, so that what stands before it is read without it.
    payload              BLOB    NOT NULL,

    CONSTRAINT semel_dead_letters_generation CHECK (generation BETWEEN 0 AND 2147483647),
    CONSTRAINT semel_dead_letters_state CHECK (state IN ('dead', 'redriven', 'applied')),
    CONSTRAINT semel_dead_letters_attempts CHECK (attempts BETWEEN 0 AND 4294967295),
    CONSTRAINT semel_dead_letters_cause CHECK (length(CAST(cause AS BLOB)) <= 1000),
    CONSTRAINT semel_dead_letters_changed_at CHECK (changed_at >= dead_at),
    CONSTRAINT semel_dead_letters_message_id CHECK (length(CAST(message_id AS BLOB)) <= 65536),
    CONSTRAINT semel_dead_letters_topic CHECK (length(CAST(topic AS BLOB)) <= 65536),
    CONSTRAINT semel_dead_letters_ordering_key CHECK (length(CAST(ordering_key AS BLOB)) <= 65536),
    CONSTRAINT semel_dead_letters_message_type CHECK (length(CAST(message_type AS BLOB)) <= 65536),
    CONSTRAINT semel_dead_letters_producer CHECK (length(CAST(producer AS BLOB)) <= 65536),
    CONSTRAINT semel_dead_letters_content_type CHECK (length(CAST(content_type AS BLOB)) <= 65536),
    CONSTRAINT semel_dead_letters_headers CHECK (length(CAST(headers AS BLOB)) <= 1048576),
    CONSTRAINT semel_dead_letters_sequence CHECK (
        CASE WHEN sequence IS NULL
            THEN coalesce(sequence_incarnation, sequence_topic, sequence_lane) IS NULL
            ELSE coalesce(sequence >= 0 AND sequence_lane BETWEEN 0 AND 65535
                AND length(CAST(sequence_incarnation AS BLOB)) <= 65536
                AND length(CAST(sequence_topic AS BLOB)) <= 65536, 0)
        END
    ),
    CONSTRAINT semel_dead_letters_offset CHECK (
        CASE WHEN "offset" IS NULL
            THEN coalesce(offset_source, offset_topic, offset_partition, offset_from) IS NULL
            ELSE coalesce(offset_from IS NOT NULL AND offset_partition BETWEEN -2147483648 AND 2147483647
                AND length(CAST(offset_source AS BLOB)) <= 65536
                AND length(CAST(offset_topic AS BLOB)) <= 65536, 0)
        END
    ),
    CONSTRAINT semel_dead_letters_version CHECK (
        CASE WHEN version IS NULL
            THEN coalesce(entity, version_rule) IS NULL
            ELSE coalesce(version >= 1 AND version_rule IN ('latest', 'each')
                AND length(CAST(entity AS BLOB)) BETWEEN 1 AND 255, 0)
        END
    ),
    CONSTRAINT semel_dead_letters_payload CHECK (length(payload) <= 67108864)
) STRICT;

-- Those of a consumer in one state, the oldest first.
CREATE INDEX semel_dead_letters_state ON semel_dead_letters (consumer, state);

-- What is changed by hand may be a consumer or one of its letters.
ALTER TABLE semel_audit ADD COLUMN consumer TEXT
    CONSTRAINT semel_audit_consumer CHECK (length(CAST(consumer AS BLOB)) BETWEEN 1 AND 255);
ALTER TABLE semel_audit ADD COLUMN letter INTEGER;
