-- A row that is there belongs to a key whose window is over.
INSERT INTO keys (desk, key, kind, request, status, body, received_at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (desk, key) DO UPDATE SET
    kind = excluded.kind,
    request = excluded.request,
    status = excluded.status,
    body = excluded.body,
    received_at_ms = excluded.received_at_ms
