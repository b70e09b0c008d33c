-- How much has been charged, and how much of that the consumer has applied.
SELECT (SELECT count(*) FROM payments_charges) + (SELECT coalesce(sum(version), 0) FROM payments_accounts),
       (SELECT coalesce(sum(issued), 0) FROM payments_receipts)
           + (SELECT coalesce(sum(applied), 0) FROM payments_balances)
