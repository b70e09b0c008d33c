-- The first failure stays.
UPDATE semel_flows SET unwinding = ?2, unwinding_sealed_by = ?3, failures = 0 WHERE execution = ?1 AND unwinding IS NULL
