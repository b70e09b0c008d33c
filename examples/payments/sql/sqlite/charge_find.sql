SELECT id, account, amount, currency FROM payments_charges WHERE tenant = ?1 AND id = ?2
