INSERT INTO payments_transfers (tenant, id, from_account, to_account, amount, currency)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
