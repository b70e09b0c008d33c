UPDATE faults SET seen = ?2, remaining = ?3 WHERE sequence = ?1
