SELECT EXISTS (SELECT 1 FROM executions WHERE id = ?1 AND kind = 'charge' AND outcome = 'succeeded')
