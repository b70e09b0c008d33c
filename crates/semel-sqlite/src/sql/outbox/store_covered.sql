UPDATE semel_outbox SET covered = max(covered, ?1)
