-- Both sides in one statement: there is no half of a movement.
INSERT INTO payments_entries (tenant, kind, reference, side, account, external, amount, currency)
VALUES (?1, ?2, ?3, 'debit', ?4, ?5, -?6, ?7),
       (?1, ?2, ?3, 'credit', ?8, ?9, ?6, ?7)
