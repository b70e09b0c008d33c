UPDATE payments_accounts SET balance = balance + $3::bigint, version = version + 1 WHERE tenant = $1 AND id = $2
