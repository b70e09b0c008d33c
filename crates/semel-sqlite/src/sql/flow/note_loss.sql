UPDATE semel_flows SET failures = ?2, cause = ?3, paused = ?4, resting = ?4 WHERE execution = ?1
