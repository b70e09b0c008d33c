INSERT INTO semel_marks (consumer, generation, incarnation, topic, lane, applied)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (consumer, generation, incarnation, topic, lane) DO UPDATE SET applied = excluded.applied
