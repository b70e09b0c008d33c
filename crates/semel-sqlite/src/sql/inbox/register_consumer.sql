-- It takes the write lock even where it inserts nothing: what is read after it is what is committed now.
INSERT INTO semel_consumers (name, created_at) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING
