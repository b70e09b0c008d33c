INSERT INTO webhooks (id, url, body, remaining) VALUES (?1, ?2, ?3, ?4)
