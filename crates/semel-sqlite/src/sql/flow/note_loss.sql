UPDATE semel_flows SET failures = ?2, cause = ?3 WHERE execution = ?1
