-- Always in the order of the ids, so that two opposite transfers wait for each other instead of deadlocking.
SELECT id, currency, balance, version FROM payments_accounts WHERE tenant = $1 AND id IN ($2, $3) ORDER BY id
FOR NO KEY UPDATE
