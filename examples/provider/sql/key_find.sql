SELECT kind, request, status, body, received_at_ms FROM keys WHERE desk = ?1 AND key = ?2
