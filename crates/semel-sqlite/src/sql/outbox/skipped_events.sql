SELECT ordering_key, event FROM semel_audit WHERE event IS NOT NULL AND action = 'outbox skip'
