-- $1 consumer, $2 generation, $3 sources, $4 topics, $5 partitions, $6 where each was read on, $7 offsets
SELECT coalesce(array_agg(s.seen IS NOT NULL ORDER BY u.position), '{}')
FROM unnest($3::text[], $4::text[], $5::integer[], $6::bigint[], $7::bigint[]) WITH ORDINALITY
     AS u (source, topic, partition, read_from, record_offset, position)
LEFT JOIN LATERAL (
    SELECT true AS seen FROM semel.offsets o
    WHERE o.consumer = (SELECT c.id FROM semel.consumers c WHERE c.name = $1) AND o.generation = $2
      AND o.source = u.source AND o.topic = u.topic AND o.partition = u.partition AND o.next > u.record_offset
    LIMIT 1) s ON true
