-- What was counted in another incarnation has no sequence in this one until it is redriven.
UPDATE semel_held_events SET sequence = 0
