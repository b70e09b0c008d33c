UPDATE bench_accounts SET balance = balance + $2::bigint, changes = changes + 1 WHERE account = $1::bigint
