SELECT covered FROM semel_outbox
