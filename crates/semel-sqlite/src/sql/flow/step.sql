SELECT kind, state, coalesce(length(attempts), 0) FROM semel_flow_steps WHERE execution = ?1 AND step = ?2
