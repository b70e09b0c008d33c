-- The business: each step of an order is a line. Nothing keeps a step from writing two, so that doubles are counted.
CREATE TABLE bench_lines (
    line bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    flow bigint NOT NULL,
    step bigint NOT NULL,
    amount bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX bench_lines_flow ON bench_lines (flow);
