-- SQLite has one writer at a time: inside a write transaction reading is locking.
SELECT id, currency, balance, version FROM payments_accounts WHERE tenant = ?1 AND id IN (?2, ?3) ORDER BY id
