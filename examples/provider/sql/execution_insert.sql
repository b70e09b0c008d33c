INSERT INTO executions (id, kind, key, request, outcome, result, executed_at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
