-- Accepts an event in a known lane by its sequence, if nobody has seen it and the commit will be durable. Else there is
-- no row, and semel.accept_sequence tells. It counts the ranges of a lane that has many (I12).
UPDATE semel.marks m SET applied = m.applied + int8multirange(int8range($6, $6 + 1))
FROM semel.consumers c
WHERE c.name = $1 AND m.consumer = c.id AND m.generation = $2 AND m.incarnation = $3 AND m.topic = $4 AND m.lane = $5
  AND NOT m.applied @> $6 AND pg_column_size(m.applied) < 1000
  AND current_setting('synchronous_commit') IN ('on', 'remote_apply')
RETURNING true
