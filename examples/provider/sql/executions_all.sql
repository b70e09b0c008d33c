SELECT id, kind, key, request, outcome, result, executed_at_ms FROM executions ORDER BY sequence
