INSERT INTO faults (kind, fault, every, remaining) VALUES (?1, ?2, ?3, ?4)
