-- The fence of a step, as a plain statement: no row if the lease was lost (I7). What the statements of the step emit or
-- stage by themselves is numbered in its run ($6). Told is whether more than half of the lease is over, $7 milliseconds
-- of it.
--
-- All that is above the lock: a SELECT computes its columns before it waits for the row.
SELECT coalesce(l.lease_expires_at < clock_timestamp() + make_interval(secs => $7::bigint / 2000.0::float8), true),
       set_config('semel.fenced', $4::uuid::text, true), set_config('semel.execution', $6, true)
FROM (SELECT k.lease_expires_at
      FROM semel.keys k
      WHERE k.tenant = $1 AND k.operation = $2 AND k.key = $3 AND k.execution = $4 AND k.epoch = $5
        AND k.state = 'in_progress'
      FOR UPDATE) l
