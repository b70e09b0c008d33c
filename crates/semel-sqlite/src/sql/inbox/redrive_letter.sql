UPDATE semel_dead_letters SET state = 'redriven', changed_at = max(changed_at, ?2) WHERE id = ?1
