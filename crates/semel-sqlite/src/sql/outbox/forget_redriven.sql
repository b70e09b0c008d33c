DELETE FROM semel_redriven WHERE lane = ?1 AND seq <= ?2
