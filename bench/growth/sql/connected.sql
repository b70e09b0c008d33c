SELECT count(*) FROM pg_stat_activity a WHERE a.datname = $1::text AND a.backend_type = 'client backend'
