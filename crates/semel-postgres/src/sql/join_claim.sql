SELECT outcome, execution, replaces, status, headers, body, sealed_by, retry_after_ms
FROM semel.claim($1, $2, $3, $4)
