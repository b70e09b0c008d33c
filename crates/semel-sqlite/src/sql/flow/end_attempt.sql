UPDATE semel_flow_steps
SET attempts = substr(attempts, 1, ?3 - 1) || ?4 || substr(attempts, ?3 + 1), cause = ?5
WHERE execution = ?1 AND step = ?2 AND kind = 'call' AND ?3 BETWEEN 1 AND length(attempts)
