SELECT count(*) FROM semel.keys WHERE state = 'in_progress' AND lease_expires_at <= statement_timestamp()
