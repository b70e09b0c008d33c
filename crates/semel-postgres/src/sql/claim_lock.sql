-- The first statement of a claim: asks for the key's lock, and sets what holds to the end of the transaction.
-- $1 the lock, $2 whether to wait for it, $3 the execution that the completion must name, $4 how long the transaction
-- may stand still, in milliseconds.
SELECT CASE WHEN $2 THEN pg_advisory_xact_lock($1) IS NOT NULL ELSE pg_try_advisory_xact_lock($1) END AS locked,
       set_config('semel.claims', $3, true),
       set_config('idle_in_transaction_session_timeout', $4, true),
       set_config('statement_timeout', $4, true)
