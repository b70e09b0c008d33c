SELECT lane, cursor FROM semel_lanes
