INSERT INTO payments_receipts (consumer, generation, tenant, charge, account, amount, currency, issued)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1)
ON CONFLICT (consumer, generation, tenant, charge) DO UPDATE SET issued = issued + 1
