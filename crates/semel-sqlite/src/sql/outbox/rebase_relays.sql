DELETE FROM semel_relays
