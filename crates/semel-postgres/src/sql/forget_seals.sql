-- Ids that nobody needs any more. The reaper may not have come by yet, so the rows are asked, not the calendar.
DELETE FROM semel.seals s
WHERE s.id <> ALL ($1)
  AND NOT EXISTS (SELECT FROM semel.keys k WHERE k.sealed_by = s.id AND k.expires_at > clock_timestamp())
