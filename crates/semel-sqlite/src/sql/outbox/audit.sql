INSERT INTO semel_audit (at, actor, action, ordering_key, event, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
