UPDATE semel_flows SET cancelled = 1 WHERE execution = ?1
