-- A charge that counts once, with psql alone:
--   psql "$DATABASE_URL" -v tenant=shop-7 -v key=5f0c7a1e -v amount=4200 -f charge.sql
-- Run it twice with the same key: the second run prints the first one's reply and charges nothing.
\set ON_ERROR_STOP on
\set QUIET on
\pset format unaligned
\pset tuples_only on

BEGIN;
SET LOCAL idle_in_transaction_session_timeout = '30s';

-- Claim: the first statement after BEGIN. It never waits.
-- (\gset leaves a NULL unset, hence the coalesce.)
SELECT outcome, execution, coalesce(replaces::text, '') AS replaces, status, convert_from(body, 'UTF8') AS body
FROM semel.claim(:'tenant', 'charges.create', :'key', semel.fingerprint(convert_to(:'amount', 'UTF8')))
\gset claim_

SELECT :'claim_outcome' = 'fresh' AS fresh, :'claim_outcome' = 'replay' AS replay
\gset

\if :fresh
    -- Act.
    INSERT INTO charges (id, tenant, amount) VALUES (:'claim_execution', :'tenant', :'amount');

    -- Store: the last statement before COMMIT, in the same transaction.
    SELECT semel.complete(
        :'tenant', 'charges.create', :'key', semel.fingerprint(convert_to(:'amount', 'UTF8')),
        :'claim_execution', nullif(:'claim_replaces', '')::uuid,
        201, convert_to(E'content-type: application/json\r\n', 'UTF8'),
        convert_to(json_build_object('id', :'claim_execution', 'amount', :'amount'::bigint)::text, 'UTF8'))
    \g /dev/null
    COMMIT;
    \echo fresh 201 :claim_execution
\elif :replay
    ROLLBACK;
    \echo replay :claim_status :claim_body
\else
    ROLLBACK;
    \echo :claim_outcome
\endif
