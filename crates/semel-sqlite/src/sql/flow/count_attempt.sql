-- Provider and key stay as they were first stored (I8). The provider's window opens with the first attempt, or with
-- the first one after a person found out that none had an effect.
UPDATE semel_flow_steps
SET provider = coalesce(provider, ?3), derived_key = coalesce(derived_key, ?4),
    sent_at = CASE WHEN attempts = '' THEN ?5 ELSE sent_at END, attempted_at = ?6, attempts = attempts || '-'
WHERE execution = ?1 AND step = ?2 AND kind = 'call' AND state = 'pending'
