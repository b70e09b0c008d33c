SELECT quantity FROM payments_stock WHERE tenant = $1 AND sku = $2
