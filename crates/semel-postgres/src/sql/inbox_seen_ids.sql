-- $1 consumer, $2 generation, $3 ids
SELECT coalesce(array_agg(s.seen IS NOT NULL ORDER BY u.position), '{}')
FROM unnest($3::text[]) WITH ORDINALITY AS u (id, position)
-- The limit keeps it to one look into the index for each, however many rows there are.
LEFT JOIN LATERAL (
    SELECT true AS seen FROM semel.inbox i
    WHERE i.consumer = (SELECT c.id FROM semel.consumers c WHERE c.name = $1) AND i.generation = $2
      AND i.message_id = u.id
    LIMIT 1) s ON true
