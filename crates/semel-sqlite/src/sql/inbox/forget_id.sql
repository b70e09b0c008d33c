DELETE FROM semel_inbox WHERE consumer = ?1 AND generation = ?2 AND message_id = ?3
