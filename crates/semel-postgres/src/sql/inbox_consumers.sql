-- $1 the one consumer that is asked for, or null, $2 the most
SELECT c.name::text AS name, c.generation::integer AS generation, c.recognition::text AS recognition,
       (extract(epoch FROM c.retention) * 1000)::bigint AS retention_ms,
       (SELECT count(*) FROM semel.inbox i WHERE i.consumer = c.id) AS ids,
       m.lanes, m.holes,
       (SELECT count(*) FROM semel.offsets o WHERE o.consumer = c.id AND o.generation = c.generation) AS partitions,
       (SELECT count(*) FROM semel.dead_letters d WHERE d.consumer = c.id AND d.state = 'dead') AS dead,
       (SELECT count(*) FROM semel.dead_letters d WHERE d.consumer = c.id AND d.state = 'redriven') AS redriven,
       (SELECT (extract(epoch FROM max(i.received_at)) * 1000)::bigint FROM semel.inbox i WHERE i.consumer = c.id)
           AS last_ms
FROM semel.consumers c,
     LATERAL (
         SELECT count(*) AS lanes,
                -- Each range but the first follows a hole, and the first does if it does not begin at one.
                coalesce(sum((SELECT count(*) FROM unnest(k.applied))
                             - CASE WHEN lower(k.applied) = 1 THEN 1 ELSE 0 END), 0)::bigint AS holes
         FROM semel.marks k
         WHERE k.consumer = c.id AND k.generation = c.generation) m
WHERE $1::text IS NULL OR c.name = $1
ORDER BY c.name
LIMIT $2
