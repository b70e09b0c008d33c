-- The id is found in the index, which is walked, without reading the events.
SELECT seq, id, lane, emitted_at, topic, ordering_key, type, content_type, headers, traceparent,
       tracestate, payload,
       (SELECT semel_lanes.cursor FROM semel_lanes WHERE semel_lanes.lane = semel_events.lane)
FROM semel_events
WHERE seq = (SELECT found.seq FROM semel_events AS found INDEXED BY semel_events_places WHERE found.id = ?1)
