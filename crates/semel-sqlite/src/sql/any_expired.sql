SELECT EXISTS (SELECT 1 FROM semel_keys WHERE state <> 'in_progress' AND expires_at <= ?1)
