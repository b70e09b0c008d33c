INSERT INTO dice (kind, chosen) VALUES (?1, ?2)
ON CONFLICT (kind) DO UPDATE SET chosen = excluded.chosen, thrown = 0
