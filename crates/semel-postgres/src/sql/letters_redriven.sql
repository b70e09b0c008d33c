-- $1 consumer, $2 the most. What comes behind the first 64 MiB is for another time.
SELECT l.id
FROM (SELECT f.id, sum(f.bytes) OVER (ORDER BY f.id) - f.bytes AS bytes_before
      FROM (SELECT d.id, octet_length(d.payload) AS bytes FROM semel.dead_letters d
            WHERE d.consumer = (SELECT c.id FROM semel.consumers c WHERE c.name = $1) AND d.state = 'redriven'
            ORDER BY d.id
            LIMIT $2) f) l
WHERE l.bytes_before <= 64 * 1024 * 1024
ORDER BY l.id
