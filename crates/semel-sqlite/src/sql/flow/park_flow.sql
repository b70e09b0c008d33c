-- A flow that is parked stays as it is, so that it counts one failure however often its worker says so. One that would
-- merely pause is due at once if an operator has asked for it to be undone: its worker has not seen that yet.
UPDATE semel_flows
SET paused = 1, cause = ?2, failures = CASE WHEN ?2 IS NULL THEN 0 ELSE min(failures + 1, 4294967295) END
WHERE execution = ?1 AND paused = 0
RETURNING cancelled AND unwinding IS NULL AND ?2 IS NULL
