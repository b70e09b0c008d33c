INSERT INTO semel_flow_steps (execution, step, ordinal, kind, state, recorded_at, provider, derived_key, attempts,
                              sent_at, attempted_at)
VALUES (?1, ?2, (SELECT coalesce(max(ordinal), 0) + 1 FROM semel_flow_steps WHERE execution = ?1), 'call', 'pending',
        ?6, ?3, ?4, '-', ?5, ?6)
