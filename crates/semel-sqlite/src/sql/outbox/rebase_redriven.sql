DELETE FROM semel_redriven
