UPDATE semel_relays SET expires_at = ?2 WHERE id = ?1
