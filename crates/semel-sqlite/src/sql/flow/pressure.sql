SELECT flow, count(*), min(lease_expires_at)
FROM semel_keys
WHERE flow IS NOT NULL AND state = 'in_progress' AND lease_expires_at <= ?1
GROUP BY flow
ORDER BY flow
