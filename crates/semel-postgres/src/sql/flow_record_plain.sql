-- semel.record_step as a plain statement, for a step that did not keep its lease from being renewed. The transaction is
-- the one that was fenced, so that the row is locked since. It records the step or fails, because COMMIT follows before
-- anybody looks. One that is to be undone counts nothing. $1 execution, $2 step, $3 kind, $4 state, $5 result, $6 what
-- it is sealed with.
WITH counted AS (
    UPDATE semel.flows f SET steps = f.steps + 1, failures = 0
    WHERE f.execution = $1::uuid AND (f.unwinding IS NOT NULL OR NOT f.cancelled)
    RETURNING f.steps - 1 AS ordinal),
recorded AS (
    INSERT INTO semel.flow_steps (execution, step, ordinal, kind, state, result, sealed_by, recorded_at, settled_at)
    SELECT $1, $2, c.ordinal, $3, $4, $5, $6, clock_timestamp(), clock_timestamp() FROM counted c
    ON CONFLICT ON CONSTRAINT flow_steps_pkey DO NOTHING
    RETURNING execution)
SELECT CASE WHEN r.is_new AND current_setting('semel.fenced', true) = $1::text
                 AND current_setting('synchronous_commit') IN ('on', 'remote_apply')
            THEN $1 ELSE semel.recording($1, r.is_new) END AS execution
FROM (SELECT EXISTS (SELECT FROM recorded) AS is_new) r
