-- Events that a replay numbers otherwise, or leaves out: redriven with a sequence, held or skipped without.
SELECT r.lane::smallint AS lane, r.id, r.sequence FROM semel.redriven r
WHERE r.incarnation = semel.incarnation_hash()
UNION ALL
SELECT h.lane::smallint, h.id, NULL FROM semel.held_events h
UNION ALL
SELECT semel.lane(a.ordering_key), a.event, NULL FROM semel.audit a
WHERE a.event IS NOT NULL AND a.action = 'outbox skip'
