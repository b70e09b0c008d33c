SELECT count(*) FROM semel_relays WHERE expires_at > ?1
