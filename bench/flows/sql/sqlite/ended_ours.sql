SELECT count(*) FROM semel_keys k WHERE k.state = 'completed'
