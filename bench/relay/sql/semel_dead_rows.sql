SELECT coalesce(sum(n_dead_tup), 0)::bigint
FROM pg_stat_user_tables
WHERE schemaname = 'semel' AND relname SIMILAR TO '(events|ticks|positions)_[0-9]+'
