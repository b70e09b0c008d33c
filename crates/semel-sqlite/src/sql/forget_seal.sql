DELETE FROM semel_seals WHERE id = ?1
