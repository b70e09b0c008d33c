SELECT id, account, sku, quantity, amount, currency, referrer, status, charge FROM payments_orders
WHERE tenant = $1 AND id = $2
