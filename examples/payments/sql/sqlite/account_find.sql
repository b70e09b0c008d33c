SELECT id, currency, balance FROM payments_accounts WHERE tenant = ?1 AND id = ?2
