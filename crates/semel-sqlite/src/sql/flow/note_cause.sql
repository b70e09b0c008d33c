UPDATE semel_flows SET cause = ?2 WHERE execution = ?1
