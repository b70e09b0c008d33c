UPDATE semel_flows SET released = 1, failures = 0, cause = NULL, lives_from = ?2 WHERE execution = ?1
