INSERT INTO semel_keys (tenant, operation, key, execution, fingerprint, state,
                        created_at, expires_at, holder, epoch, lease_expires_at, flow)
VALUES (?1, ?2, ?3, ?4, ?5, 'in_progress', ?6, ?7, ?8, 1, ?9, ?10)
