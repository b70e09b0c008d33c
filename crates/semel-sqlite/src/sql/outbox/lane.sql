SELECT history_cursor, history_counts FROM semel_lanes WHERE lane = ?1
