UPDATE semel_consumers SET recognition = ?2, retention_ms = ?3, declared_at = ?4 WHERE id = ?1
