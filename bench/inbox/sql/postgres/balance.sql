UPDATE bench_balances SET amount = amount + $2::bigint, applied = applied + 1 WHERE account = $1::bigint
