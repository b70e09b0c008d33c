-- A lane never goes back: what lies behind may have been deleted, and could not be counted again. Where it stands
-- already, only a redrive changes its counts: any other call was overtaken by one.
UPDATE semel_lanes
SET cursor = max(cursor, ?3),
    counts = CASE WHEN cursor < ?3 OR (cursor = ?3 AND ?5) THEN ?4 ELSE counts END,
    incarnation = (SELECT semel_outbox.incarnation FROM semel_outbox)
WHERE lane = ?1 AND relay = ?2
