UPDATE semel_lanes SET relay = NULL WHERE lane = ?1 AND relay = ?2
