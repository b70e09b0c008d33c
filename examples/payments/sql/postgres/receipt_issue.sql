INSERT INTO payments_receipts AS receipt (consumer, generation, tenant, charge, account, amount, currency, issued)
VALUES ($1::text, $2::bigint, $3::text, $4::text, $5::text, $6::bigint, $7::text, 1)
ON CONFLICT (consumer, generation, tenant, charge) DO UPDATE SET issued = receipt.issued + 1
