UPDATE dice SET thrown = thrown + 1 WHERE kind = ?1
