-- One row at least: the calls in doubt are counted also when no flow is due. What is held is kept for a hundred years,
-- by which an index finds it among what has ended.
SELECT (SELECT count(*) FROM semel.flow_steps s WHERE s.state = 'unknown') AS unknown,
       (SELECT count(*) FROM semel.keys k
        WHERE k.flow IS NOT NULL AND k.state <> 'in_progress' AND k.state = 'unknown'
          AND k.expires_at > statement_timestamp() + interval '50 years') AS held,
       d.flow, d.flows, d.oldest_ms
FROM (VALUES (true)) AS one (is_there)
LEFT JOIN (
    SELECT k.flow, count(*) AS flows,
           (extract(epoch FROM statement_timestamp() - min(k.lease_expires_at)) * 1000)::bigint AS oldest_ms
    FROM semel.keys k
    WHERE k.flow IS NOT NULL AND k.state = 'in_progress' AND k.lease_expires_at <= statement_timestamp()
    GROUP BY k.flow) d ON true
ORDER BY d.flow
