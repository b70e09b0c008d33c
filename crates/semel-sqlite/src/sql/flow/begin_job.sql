-- However long it waited for its first worker, its life is before it.
UPDATE semel_flows SET begun_at = ?2 WHERE execution = ?1
