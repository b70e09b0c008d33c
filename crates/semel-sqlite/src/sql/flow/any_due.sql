SELECT EXISTS (SELECT 1 FROM semel_keys WHERE flow = ?1 AND state = 'in_progress' AND lease_expires_at <= ?2)
