SELECT count(*) FROM semel_keys WHERE flow IS NOT NULL AND state = 'unknown'
