INSERT INTO bench_outbox (topic, ordering_key, event_type, payload) VALUES ('charges', ?1, 'charge.created', ?2)
