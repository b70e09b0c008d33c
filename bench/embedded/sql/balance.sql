UPDATE bench_accounts SET balance = balance + ?2, changes = changes + 1 WHERE account = ?1
