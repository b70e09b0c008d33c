INSERT INTO semel_dead_letters (
    consumer, generation, state, attempts, cause, dead_at, changed_at,
    message_id, topic, ordering_key, message_type, producer, content_type, headers,
    sequence_incarnation, sequence_topic, sequence_lane, sequence,
    offset_source, offset_topic, offset_partition, offset_from, "offset",
    entity, version, version_rule, payload
)
SELECT
    id, ?2, 'dead', ?3, ?4, ?5, ?5,
    ?6, ?7, ?8, ?9, ?10, ?11, ?12,
    ?13, ?14, ?15, ?16,
    ?17, ?18, ?19, ?20, ?21,
    ?22, ?23, ?24, ?25
FROM semel_consumers
WHERE name = ?1
