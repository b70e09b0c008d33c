INSERT INTO bench_outbox (topic, ordering_key, event_type, payload)
VALUES ('charges', $1::text, 'charge.created', $2::bytea)
