UPDATE payments_orders SET status = 'failed' WHERE tenant = ?1 AND id = ?2 AND status = 'pending'
