-- Every id ever used, with the live rows that still need it.
SELECT semel_seals.id, count(semel_keys.id), max(semel_keys.expires_at)
FROM semel_seals
LEFT JOIN semel_keys ON semel_keys.sealed_by = semel_seals.id AND semel_keys.expires_at > ?1
GROUP BY semel_seals.id
ORDER BY semel_seals.id
