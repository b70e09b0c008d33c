-- The epoch rises, so that a worker which is still about cannot write (I7), nor leave the flow in the middle a second
-- time. One that is due already keeps its place among those who wait.
UPDATE semel_keys
SET epoch = epoch + 1, state = 'in_progress',
    lease_expires_at = CASE state WHEN 'unknown' THEN ?5 ELSE min(lease_expires_at, ?5) END
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND execution = ?4 AND state IN ('in_progress', 'unknown')
