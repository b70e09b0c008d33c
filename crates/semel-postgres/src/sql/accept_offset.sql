-- Accepts a record in a known partition that is read on where it stands, if the commit will be durable. Else there is
-- no row, and semel.accept_offsets tells.
UPDATE semel.offsets o SET next = $7 + 1
FROM semel.consumers c
WHERE c.name = $1 AND o.consumer = c.id AND o.generation = $2 AND o.source = $3 AND o.topic = $4 AND o.partition = $5
  AND o.next = $6 AND $6 <= $7
  AND current_setting('synchronous_commit') IN ('on', 'remote_apply')
RETURNING true
