-- Accepts a message of a known consumer by its id, if nobody has seen it and the commit will be durable. Else there is
-- no row, and semel.accept tells.
INSERT INTO semel.inbox (consumer, generation, message_id, received_at)
SELECT c.id, $2, $3, clock_timestamp()
FROM semel.consumers c
WHERE c.name = $1 AND current_setting('synchronous_commit') IN ('on', 'remote_apply')
ON CONFLICT ON CONSTRAINT inbox_pkey DO NOTHING
RETURNING true
