-- Both sides in one statement: there is no half of a movement.
INSERT INTO payments_entries (tenant, kind, reference, side, account, external, amount, currency)
VALUES ($1::text, $2::text, $3::text, 'debit', $4::text, $5::boolean, -$6::bigint, $7::text),
       ($1::text, $2::text, $3::text, 'credit', $8::text, $9::boolean, $6::bigint, $7::text)
