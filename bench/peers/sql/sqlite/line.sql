INSERT INTO bench_lines (flow, step, amount) VALUES (?, ?, ?)
