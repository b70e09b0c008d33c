UPDATE webhooks SET remaining = ?2 WHERE id = ?1
