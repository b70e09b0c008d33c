INSERT INTO payments_orders (tenant, id, account, sku, quantity, amount, currency, referrer, status)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'pending')
