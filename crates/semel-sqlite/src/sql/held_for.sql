-- Under this very lease and for this reason, and not because its worker was taken for gone.
SELECT EXISTS (
    SELECT 1 FROM semel_keys JOIN semel_flows USING (tenant, operation, key, execution)
    WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND epoch = ?4 AND execution = ?5 AND state = 'unknown'
      AND cause = ?6
)
