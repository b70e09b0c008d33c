UPDATE semel_flows SET released = 1, failures = 0, cause = NULL WHERE execution = ?1
