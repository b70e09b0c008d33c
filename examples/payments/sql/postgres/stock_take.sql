-- Touches no row if there are too few. Two orders wait for each other here, and the later one sees what is left.
UPDATE payments_stock SET quantity = quantity - $3 WHERE tenant = $1 AND sku = $2 AND quantity >= $3
