-- No conflict clause: the UNIQUE constraint judges, and a violation means that another run committed first.
INSERT INTO semel_keys (tenant, operation, key, execution, fingerprint, state, status, headers, body, sealed_by,
                        created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
