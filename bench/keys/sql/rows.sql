-- Row versions written, and tables read by key.
SELECT coalesce(sum(t.n_tup_ins + t.n_tup_upd), 0)::bigint FROM pg_stat_user_tables t
