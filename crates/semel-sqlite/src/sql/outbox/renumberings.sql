SELECT lane, cursor, counts FROM semel_renumbered WHERE lane = ?1 ORDER BY cursor
