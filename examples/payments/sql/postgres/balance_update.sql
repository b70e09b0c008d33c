UPDATE payments_accounts SET balance = balance + $3::bigint WHERE tenant = $1 AND id = $2
