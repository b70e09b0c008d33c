INSERT INTO semel_inbox (consumer, generation, message_id, received_at)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (consumer, generation, message_id) DO NOTHING
