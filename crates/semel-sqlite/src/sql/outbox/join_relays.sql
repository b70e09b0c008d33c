INSERT INTO semel_relays (name, expires_at) VALUES (?1, ?2)
