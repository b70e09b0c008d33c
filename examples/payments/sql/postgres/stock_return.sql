UPDATE payments_stock SET quantity = quantity + $3 WHERE tenant = $1 AND sku = $2
