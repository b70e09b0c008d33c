-- $1 consumer, $2 generation, $3 incarnations, $4 topics, $5 lanes, $6 sequences
SELECT coalesce(array_agg(s.seen IS NOT NULL ORDER BY u.position), '{}')
FROM unnest($3::text[], $4::text[], $5::smallint[], $6::bigint[]) WITH ORDINALITY
     AS u (incarnation, topic, lane, sequence, position)
LEFT JOIN LATERAL (
    SELECT true AS seen FROM semel.marks m
    WHERE m.consumer = (SELECT c.id FROM semel.consumers c WHERE c.name = $1) AND m.generation = $2
      AND m.incarnation = u.incarnation AND m.topic = u.topic AND m.lane = u.lane AND m.applied @> u.sequence
    LIMIT 1) s ON true
