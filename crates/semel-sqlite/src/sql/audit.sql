INSERT INTO semel_audit (at, actor, action, tenant, operation, key, execution, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
