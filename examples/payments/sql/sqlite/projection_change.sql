INSERT INTO payments_balances (consumer, generation, tenant, account, currency, amount, version, applied)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1)
ON CONFLICT (consumer, generation, tenant, account) DO UPDATE
SET amount = amount + excluded.amount,
    version = max(version, excluded.version),
    applied = applied + 1
