INSERT INTO bench_lines (flow, step, amount) VALUES (?1, ?2, ?3)
