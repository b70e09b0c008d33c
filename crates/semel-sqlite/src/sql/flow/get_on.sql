-- A flow that gets on has no failures in a row.
UPDATE semel_flows SET failures = 0 WHERE execution = ?1 AND failures > 0
