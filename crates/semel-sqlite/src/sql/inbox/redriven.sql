SELECT
    l.id, c.name, l.generation, l.state, l.attempts, l.cause, l.dead_at, l.changed_at,
    l.message_id, l.topic, l.ordering_key, l.message_type, l.producer, l.content_type, l.headers,
    l.sequence_incarnation, l.sequence_topic, l.sequence_lane, l.sequence,
    l.offset_source, l.offset_topic, l.offset_partition, l.offset_from, l."offset", l.payload
FROM semel_dead_letters l
JOIN semel_consumers c ON c.id = l.consumer
WHERE l.consumer = (SELECT id FROM semel_consumers WHERE name = ?1) AND l.state = 'redriven'
ORDER BY l.id
LIMIT ?2
