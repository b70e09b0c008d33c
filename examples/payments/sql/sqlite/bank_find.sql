SELECT transaction_id, account, amount FROM payments_bank_transactions WHERE tenant = ?1 AND transaction_id = ?2
