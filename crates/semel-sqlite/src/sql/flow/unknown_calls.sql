SELECT count(*) FROM semel_flow_steps WHERE state = 'unknown'
