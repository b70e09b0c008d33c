UPDATE semel_outbox SET incarnation = ?1, began_after = ?2
