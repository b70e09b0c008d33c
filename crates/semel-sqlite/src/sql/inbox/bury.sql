UPDATE semel_dead_letters
SET state = 'dead', cause = ?2, attempts = min(attempts + 1, 4294967295), changed_at = max(changed_at, ?3)
WHERE id = ?1 AND state = ?4
