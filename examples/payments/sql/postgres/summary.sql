-- One statement, so that all four numbers are of one moment. The sum is text because it is a numeric.
SELECT (SELECT count(*) FROM payments_charges WHERE tenant = $1) AS charges,
       (SELECT count(*) FROM payments_transfers WHERE tenant = $1) AS transfers,
       count(*) AS entries,
       coalesce(sum(amount), 0)::text AS sum
FROM payments_entries WHERE tenant = $1
