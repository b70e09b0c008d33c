-- No conflict clause: the PRIMARY KEY judges, and a violation means that the step is recorded already.
INSERT INTO semel_flow_steps (execution, step, ordinal, kind, state, recorded_at, settled_at, attempts, sealed_by,
                              result)
VALUES (?1, ?2, (SELECT coalesce(max(ordinal), 0) + 1 FROM semel_flow_steps WHERE execution = ?1), ?3, ?4, ?5, ?5,
        CASE WHEN ?3 = 'call' THEN '' END, ?6, ?7)
