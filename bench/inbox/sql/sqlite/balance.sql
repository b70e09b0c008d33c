UPDATE bench_balances SET amount = amount + ?2, applied = applied + 1 WHERE account = ?1
