INSERT INTO semel_flow_steps (execution, step, ordinal, kind, state, recorded_at, attempts)
VALUES (?1, ?2, (SELECT coalesce(max(ordinal), 0) + 1 FROM semel_flow_steps WHERE execution = ?1), 'call', 'unknown',
        ?3, '')
