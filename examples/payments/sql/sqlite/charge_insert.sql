INSERT INTO payments_charges (tenant, id, account, amount, currency) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (tenant, id) DO NOTHING
