-- What one consumer has made of a tenant's events, in its latest generation, beside what the books say. One statement,
-- so that all of it is of one moment.
WITH receipts AS (
    SELECT issued FROM payments_receipts
    WHERE consumer = $2 AND tenant = $1
      AND generation = (SELECT max(generation) FROM payments_receipts WHERE consumer = $2)
),
balances AS (
    SELECT account, amount, version, applied FROM payments_balances
    WHERE consumer = $2 AND tenant = $1
      AND generation = (SELECT max(generation) FROM payments_balances WHERE consumer = $2)
)
SELECT (SELECT count(*) FROM payments_charges WHERE tenant = $1) AS charges,
       (SELECT count(*) FROM receipts) AS receipts,
       (SELECT count(*) FROM receipts WHERE issued > 1) AS repeated,
       (SELECT coalesce(sum(version), 0)::bigint FROM payments_accounts WHERE tenant = $1) AS movements,
       (SELECT coalesce(sum(applied), 0)::bigint FROM balances) AS applied,
       (SELECT count(*) FROM payments_accounts AS books LEFT JOIN balances ON balances.account = books.id
        WHERE books.tenant = $1
          AND (coalesce(balances.amount, 0), coalesce(balances.version, 0), coalesce(balances.applied, 0))
              <> (books.balance, books.version, books.version)) AS apart
