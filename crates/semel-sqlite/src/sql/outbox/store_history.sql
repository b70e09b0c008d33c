UPDATE semel_lanes SET history_cursor = ?2, history_counts = ?3 WHERE lane = ?1
