INSERT INTO settings (only_row, keys, look_up) VALUES (1, ?1, ?2) ON CONFLICT (only_row) DO NOTHING
