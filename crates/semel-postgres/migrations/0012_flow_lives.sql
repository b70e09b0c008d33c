-- What a person did to a flow, as the next worker has to know it.

-- Workers lock the tables in this order. Where somebody keeps them in use for longer than this, migrate again later.
SELECT set_config('lock_timeout', '10s', true);
LOCK TABLE semel.flow_steps, semel.flows IN ACCESS EXCLUSIVE MODE;
SELECT set_config('lock_timeout', '0', true);

-- Since when its life is counted: since somebody let it go on, if that is later than its beginning. However long it was
-- held, a flow that goes on has its life before it.
ALTER TABLE semel.flows ADD COLUMN lives_from timestamptz;

-- In which history of the database somebody said that a call did not happen. Restored to a time before the next attempt
-- was counted, the row says the same, and the call may have been made.
ALTER TABLE semel.flow_steps ADD COLUMN resolved_in bigint;

-- Those that return something else, or are asked for something more, from here on.
DROP FUNCTION IF EXISTS semel.flow_journal(uuid, bigint);
DROP FUNCTION IF EXISTS semel.lock_flow(uuid);
DROP FUNCTION IF EXISTS semel.retry_flow(uuid, text, text, boolean);
DROP FUNCTION IF EXISTS semel.cancel_flow(uuid, text, text, boolean);
DROP FUNCTION IF EXISTS semel.resolve_flow(uuid, text, text, bytea, text, text, boolean);
