-- Those that are in use, the oldest first, and how many are free.
SELECT u.slot
FROM (SELECT format('slot %s: %s since %s', s.slot, s.state, to_char(
                 CASE s.state WHEN 'open' THEN s.opened_at ELSE s.closed_at END AT TIME ZONE 'UTC',
                 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) AS slot, s.generation AS place
      FROM semel.slots s
      WHERE s.state <> 'free'
      UNION ALL
      SELECT format('%s slots free', count(*)), NULL FROM semel.slots s WHERE s.state = 'free') u
ORDER BY u.place NULLS LAST
