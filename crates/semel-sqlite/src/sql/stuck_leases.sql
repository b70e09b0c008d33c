SELECT count(*) FROM semel_keys WHERE state = 'in_progress' AND lease_expires_at <= ?1
