-- One statement, so that all four numbers are of one moment. SQLite's sum() fails when it passes 2^63 on the way, so
-- the upper and the lower halves are summed apart and put together by the caller.
SELECT (SELECT count(*) FROM payments_charges WHERE tenant = ?1) AS charges,
       (SELECT count(*) FROM payments_transfers WHERE tenant = ?1) AS transfers,
       count(*) AS entries,
       coalesce(sum(amount >> 32), 0) AS upper_sum,
       coalesce(sum(amount & 4294967295), 0) AS lower_sum
FROM payments_entries WHERE tenant = ?1
