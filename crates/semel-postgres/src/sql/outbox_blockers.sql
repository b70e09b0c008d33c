-- Transactions that may still write to a slot that was closed: they took their ids before the switch was recorded.
SELECT format('slot %s of the outbox, which is not emptied until this transaction has ended', s.slot) AS holds, w.pid,
       w.who, w.since, w.state, w.query
FROM (SELECT min(s.slot) AS slot, max(s.closed_xid) AS closed_xid FROM semel.slots s WHERE s.state = 'closed') s
CROSS JOIN semel.writers_before(s.closed_xid) w
WHERE s.closed_xid IS NOT NULL
ORDER BY w.since
