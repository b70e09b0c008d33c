UPDATE semel_lanes SET relay = ?2 WHERE lane = ?1 RETURNING lane, cursor, counts
