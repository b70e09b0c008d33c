DELETE FROM semel_renumbered WHERE lane = ?1 AND cursor < ?2
