SELECT count(*) FROM semel_lanes WHERE relay IS NULL
