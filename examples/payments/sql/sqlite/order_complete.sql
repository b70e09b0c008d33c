UPDATE payments_orders SET status = 'completed', charge = ?3
WHERE tenant = ?1 AND id = ?2 AND status = 'pending'
