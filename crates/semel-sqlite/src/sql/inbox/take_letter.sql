UPDATE semel_dead_letters SET state = 'applied', changed_at = max(changed_at, ?2)
WHERE id = ?1 AND state = 'redriven'
RETURNING consumer, generation, entity, version, version_rule, message_id
