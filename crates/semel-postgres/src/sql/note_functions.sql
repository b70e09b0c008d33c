INSERT INTO semel.functions AS f (name, checksum)
SELECT * FROM unnest($1::text[], $2::bytea[])
ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum
