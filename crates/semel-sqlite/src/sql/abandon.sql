-- Only a lease under which nothing was done: not taken over, no step committed, and no flow, whose steps are elsewhere.
DELETE FROM semel_keys
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND epoch = ?4 AND execution = ?5 AND state = 'in_progress'
  AND epoch = 1 AND recovery_point IS NULL AND flow IS NULL
