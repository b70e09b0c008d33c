-- The oldest first.
SELECT format('slot %s: %s%s', s.slot, s.state,
              ' since ' || to_char(t.since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) AS slot
FROM semel.slots s
CROSS JOIN LATERAL (
    SELECT CASE s.state WHEN 'open' THEN s.opened_at WHEN 'closed' THEN s.closed_at END AS since) t
ORDER BY s.state = 'free', s.generation, s.slot
