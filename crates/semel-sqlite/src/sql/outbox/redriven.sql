SELECT id, sequence FROM semel_redriven WHERE lane = ?1
