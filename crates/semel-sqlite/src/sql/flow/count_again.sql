-- The answer was lost, and the call leaves after this one. An attempt whose end is recorded, or that others followed,
-- stays as it is.
UPDATE semel_flow_steps SET attempted_at = ?4
WHERE execution = ?1 AND step = ?2 AND kind = 'call' AND state = 'pending' AND length(attempts) = ?3
  AND substr(attempts, -1) = '-'
