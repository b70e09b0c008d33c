-- An id that this process does not know and that a row which can still be replayed needs.
SELECT s.id, max(k.expires_at)::text AS until
FROM semel.seals s
JOIN semel.keys k ON k.sealed_by = s.id AND k.expires_at > clock_timestamp()
WHERE s.id <> ALL ($1)
GROUP BY s.id
LIMIT 1
