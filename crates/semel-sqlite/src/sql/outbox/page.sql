-- ?3 has a bit for each lane that is asked for. What an earlier incarnation has published is over; only what was
-- written before ?5, where this one began, has to be asked about that.
SELECT seq, id, lane, emitted_at, topic, ordering_key, type, content_type, headers, traceparent,
       tracestate, payload
FROM semel_events
WHERE seq BETWEEN ?1 AND ?2 AND (?3 >> lane) & 1 AND (
    seq > ?5
    OR seq > (SELECT semel_lanes.history_cursor FROM semel_lanes WHERE semel_lanes.lane = semel_events.lane)
)
ORDER BY seq
LIMIT ?4
