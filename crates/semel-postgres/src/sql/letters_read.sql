-- $1 ids of letters
SELECT d.id, c.name::text AS consumer, d.generation::integer AS generation, d.state::text AS state,
       d.message_id::text AS message_id, d.topic::text AS topic, d.ordering_key::text AS ordering_key,
       d.message_type::text AS message_type, d.producer::text AS producer, d.content_type::text AS content_type,
       d.payload::bytea AS payload, d.headers::text AS headers,
       d.incarnation::text AS incarnation, d.sequence_topic::text AS sequence_topic, d.lane, d.sequence,
       d.source::text AS source, d.record_topic::text AS record_topic, d.partition, d.read_from, d.record_offset,
       d.cause::text AS cause, d.attempts,
       (extract(epoch FROM d.dead_at) * 1000)::bigint AS dead_at_ms,
       (extract(epoch FROM d.changed_at) * 1000)::bigint AS changed_at_ms
FROM semel.dead_letters d JOIN semel.consumers c ON c.id = d.consumer
WHERE d.id = ANY ($1)
ORDER BY d.id
