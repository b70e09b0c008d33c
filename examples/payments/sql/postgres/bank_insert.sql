-- The UNIQUE column decides which of two deliveries counts.
INSERT INTO payments_bank_transactions (tenant, transaction_id, account, amount) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, transaction_id) DO NOTHING
