INSERT INTO semel_renumbered (lane, cursor, counts) VALUES (?1, ?2, ?3)
ON CONFLICT (lane, cursor) DO UPDATE SET counts = excluded.counts
