INSERT INTO bench_lines (flow, step, amount) VALUES ($1::bigint, $2::bigint, $3::bigint)
