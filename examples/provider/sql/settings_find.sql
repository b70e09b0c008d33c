SELECT keys, look_up FROM settings
