UPDATE semel_lanes SET relay = NULL WHERE relay = ?1
