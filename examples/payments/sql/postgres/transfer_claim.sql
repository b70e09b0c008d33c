-- The primary key decides: whoever comes second moves no money.
INSERT INTO payments_transfers (tenant, id, from_account, to_account, amount, currency)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant, id) DO NOTHING
