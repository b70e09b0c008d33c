UPDATE semel_inbox SET received_at = max(received_at, ?4) WHERE consumer = ?1 AND generation = ?2 AND message_id = ?3
