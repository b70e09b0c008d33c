INSERT INTO semel_versions (consumer, generation, entity, version)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (consumer, generation, entity) DO UPDATE SET version = excluded.version
