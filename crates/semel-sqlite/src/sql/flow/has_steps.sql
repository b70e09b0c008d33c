SELECT EXISTS (SELECT 1 FROM semel_flow_steps WHERE execution = ?1)
