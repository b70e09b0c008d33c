-- A batch ends at ?2 rows, or with the row that takes it past ?3 bytes: its reply, and its flow, which goes along.
-- Lengths are read without what they are the lengths of.
DELETE FROM semel_keys
WHERE id IN (
    WITH expired AS (
        SELECT id, expires_at, coalesce(length(headers), 0) + coalesce(length(body), 0) + CASE
            WHEN flow IS NULL THEN 0
            ELSE coalesce((
                SELECT length(input) + coalesce(length(unwinding), 0)
                FROM semel_flows
                WHERE semel_flows.execution = semel_keys.execution
            ), 0) + coalesce((
                SELECT sum(length(result))
                FROM semel_flow_steps
                WHERE semel_flow_steps.execution = semel_keys.execution
            ), 0)
        END AS bytes
        FROM semel_keys
        WHERE state <> 'in_progress' AND expires_at <= ?1
        ORDER BY expires_at, id
        LIMIT ?2
    ), measured AS (
        SELECT id, sum(bytes) OVER (ORDER BY expires_at, id ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before
        FROM expired
    )
    SELECT id FROM measured WHERE bytes_before < ?3
)
