-- A lane never goes back: what lies behind may have been deleted, and could not be counted again.
UPDATE semel_lanes
SET cursor = max(cursor, ?3),
    counts = CASE WHEN cursor <= ?3 THEN ?4 ELSE counts END,
    incarnation = (SELECT semel_outbox.incarnation FROM semel_outbox)
WHERE lane = ?1 AND relay = ?2
