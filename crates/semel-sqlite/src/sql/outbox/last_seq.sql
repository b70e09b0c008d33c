-- The last that was ever drawn, whether or not its event is still there.
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'semel_events'
