INSERT INTO outbox (topic, ordering_key, payload)
SELECT $1, event.ordering_key, event.payload
FROM unnest($2::text[], $3::bytea[]) WITH ORDINALITY AS event (ordering_key, payload, place)
ORDER BY event.place
