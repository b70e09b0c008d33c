-- A flow that pauses, a job that nobody has begun, and what an operator let go on wait for a completer and were not
-- abandoned.
SELECT count(*)
FROM semel_keys k
LEFT JOIN semel_flows f ON f.execution = k.execution
WHERE k.state = 'in_progress' AND k.lease_expires_at <= ?1
  AND (f.execution IS NULL OR NOT (f.paused OR f.released OR k.holder = 'staged'))
