-- The sealing keys that flows need which have not ended, with how many do. What ended flows have recorded is not opened
-- again.
WITH living AS (
    SELECT execution FROM semel_keys WHERE flow IS NOT NULL AND state = 'in_progress'
    UNION ALL
    SELECT execution FROM semel_keys WHERE flow IS NOT NULL AND state = 'unknown'
), needed AS (
    SELECT execution, sealed_by AS id FROM living CROSS JOIN semel_flows USING (execution)
    UNION
    SELECT execution, unwinding_sealed_by FROM living CROSS JOIN semel_flows USING (execution)
    UNION
    SELECT execution, sealed_by FROM living CROSS JOIN semel_flow_steps USING (execution)
)
SELECT id, count(*)
FROM needed
WHERE id IS NOT NULL
GROUP BY id
ORDER BY id
