SELECT count(*) FROM faults WHERE remaining > 0
