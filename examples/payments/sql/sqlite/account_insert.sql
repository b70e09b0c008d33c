INSERT INTO payments_accounts (tenant, id, currency, balance) VALUES (?1, ?2, ?3, 0)
ON CONFLICT (tenant, id) DO NOTHING
