INSERT INTO semel_audit (at, actor, action, consumer, letter, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
