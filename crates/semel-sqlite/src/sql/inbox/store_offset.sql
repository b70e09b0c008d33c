INSERT INTO semel_offsets (consumer, generation, source, topic, partition, next)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (consumer, generation, source, topic, partition) DO UPDATE SET next = excluded.next
