SELECT
    count(*) FILTER (WHERE kind = 'charge' AND outcome = 'succeeded') AS charges,
    count(*) FILTER (WHERE kind = 'refund' AND outcome = 'succeeded') AS refunds,
    count(*) FILTER (WHERE kind = 'mail' AND outcome = 'succeeded') AS mails,
    count(*) FILTER (WHERE outcome = 'declined') AS declined,
    -- Charges and refunds share their keys, as they do at the card processor's desk.
    (SELECT count(*) FROM (
        SELECT 1 FROM executions WHERE key IS NOT NULL GROUP BY kind = 'mail', key HAVING count(*) > 1
    )) AS repeated_keys
FROM executions
