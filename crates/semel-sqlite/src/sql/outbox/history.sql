-- Lanes of which something is left that this incarnation counts.
SELECT semel_lanes.lane, semel_lanes.history_cursor, semel_lanes.history_counts, semel_lanes.cursor
FROM (SELECT lane, max(seq) AS last FROM semel_events INDEXED BY semel_events_places GROUP BY lane) AS kept
CROSS JOIN semel_lanes ON semel_lanes.lane = kept.lane
WHERE kept.last > semel_lanes.history_cursor
ORDER BY semel_lanes.lane
