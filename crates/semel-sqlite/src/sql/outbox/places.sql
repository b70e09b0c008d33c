SELECT seq, lane FROM semel_events INDEXED BY semel_events_places WHERE seq > ?1 ORDER BY seq
