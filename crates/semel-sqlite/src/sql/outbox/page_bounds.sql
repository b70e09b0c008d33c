-- All are looked up, not walked to.
SELECT (SELECT min(seq) FROM semel_events WHERE seq > ?1), (SELECT max(seq) FROM semel_events),
       (SELECT began_after FROM semel_outbox)
