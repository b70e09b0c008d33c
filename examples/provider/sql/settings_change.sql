UPDATE settings SET keys = ?1, look_up = ?2
