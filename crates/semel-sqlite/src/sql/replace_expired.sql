-- Only the row that was seen expired, never one that another run has put there since.
DELETE FROM semel_keys
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND execution = ?4
  AND state <> 'in_progress' AND expires_at <= ?5
