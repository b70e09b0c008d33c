INSERT INTO payments_stock (tenant, sku, quantity) VALUES (?1, ?2, ?3)
ON CONFLICT (tenant, sku) DO UPDATE SET quantity = excluded.quantity
