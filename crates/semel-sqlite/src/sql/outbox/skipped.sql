SELECT actor, reason FROM semel_audit WHERE event = ?1 AND action = 'outbox skip' ORDER BY id DESC LIMIT 1
