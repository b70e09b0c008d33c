-- The business: each step of an order is a line. Nothing keeps a step from writing two, so that doubles are counted.
CREATE TABLE bench_lines (
    line INTEGER PRIMARY KEY,
    flow INTEGER NOT NULL,
    step INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    at INTEGER NOT NULL DEFAULT (unixepoch())
) STRICT;
CREATE INDEX bench_lines_flow ON bench_lines (flow);
