INSERT INTO semel_redriven (seq, lane, id, sequence)
SELECT seq, lane, id, ?4 FROM semel_events WHERE seq = ?3 AND lane = ?1 AND ordering_key = ?2
ON CONFLICT (seq) DO UPDATE SET sequence = excluded.sequence
