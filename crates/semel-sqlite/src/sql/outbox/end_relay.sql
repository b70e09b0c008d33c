DELETE FROM semel_relays WHERE id = ?1
