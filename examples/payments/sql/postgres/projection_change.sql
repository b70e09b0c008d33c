INSERT INTO payments_balances AS balance (consumer, generation, tenant, account, currency, amount, version, applied)
VALUES ($1::text, $2::bigint, $3::text, $4::text, $5::text, $6::bigint, $7::bigint, 1)
ON CONFLICT (consumer, generation, tenant, account) DO UPDATE
SET amount = balance.amount + excluded.amount,
    version = greatest(balance.version, excluded.version),
    applied = balance.applied + 1
