-- $1 consumer, $2 letter, $3 state, each null if it does not matter, $4 the most. What comes behind the first 64 MiB is
-- left out.
SELECT l.id
FROM (SELECT f.id, sum(f.bytes) OVER (ORDER BY f.id) - f.bytes AS bytes_before
      FROM (SELECT d.id, octet_length(d.payload) AS bytes FROM semel.dead_letters d
            WHERE ($1::text IS NULL OR d.consumer = (SELECT c.id FROM semel.consumers c WHERE c.name = $1))
              AND ($2::bigint IS NULL OR d.id = $2)
              AND ($3::text IS NULL OR d.state = $3)
            ORDER BY d.id
            LIMIT $4) f) l
WHERE l.bytes_before <= 64 * 1024 * 1024
ORDER BY l.id
