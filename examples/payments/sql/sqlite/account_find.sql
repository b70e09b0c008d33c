SELECT id, currency, balance, version FROM payments_accounts WHERE tenant = ?1 AND id = ?2
