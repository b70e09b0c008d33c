-- Under the key that is stored, as if it had never been sent.
UPDATE semel_flow_steps SET state = 'pending', attempts = '', sent_at = NULL, attempted_at = NULL,
                            resolved_in = (SELECT incarnation FROM semel_outbox)
WHERE execution = ?1 AND step = ?2 AND kind = 'call' AND state = 'unknown'
