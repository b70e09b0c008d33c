SELECT count(*) FROM semel.keys k WHERE k.state = 'completed'
