-- Their events' sequences belong to the incarnation before. Parked ones get new ones when somebody redrives them.
UPDATE semel_held_keys SET state = 'redriving' WHERE state = 'retrying'
