INSERT INTO requests (path, key, received) VALUES (?1, ?2, 1)
ON CONFLICT (path, key) DO UPDATE SET received = received + 1
