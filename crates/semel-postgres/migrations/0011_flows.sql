-- Flows: work of several steps under a leased key.
--
--   semel.flows       one row per flow: the function, what it began with, and how it fares. Whoever may work on it, and
--                     until when, stands in the row of its key, which is written and deleted with it.
--   semel.flow_steps  one row per recorded step. A commit and a pause are recorded when they are done. A call is
--                     recorded before it is made, with the key by which its provider recognises it, and every attempt
--                     is counted before it leaves.
--
-- Only whoever has locked the key's row and found its own execution and epoch in it writes here (I7), and operators,
-- who lock it too. Services call semel.stage; the other functions are those of workers and operators.

-- Bounds stand in domains, as those of the outbox do, because they are cheaper there.
CREATE DOMAIN semel.flow_name AS text COLLATE "C" CHECK (octet_length(VALUE) BETWEEN 1 AND 100 AND VALUE !~ '[^!-~]');
-- 80 characters, and the 6 that begin the name of a step which undoes another.
CREATE DOMAIN semel.step_name AS text COLLATE "C" CHECK (octet_length(VALUE) BETWEEN 1 AND 86 AND VALUE !~ '[^!-~]');
CREATE DOMAIN semel.step_ordinal AS smallint CHECK (VALUE BETWEEN 0 AND 999);
CREATE DOMAIN semel.step_kind AS text COLLATE "C" CHECK (VALUE IN ('commit', 'call', 'sleep'));
CREATE DOMAIN semel.step_state AS text COLLATE "C" CHECK (VALUE IN ('pending', 'done', 'failed', 'unknown'));
CREATE DOMAIN semel.derived_key AS text COLLATE "C"
    CHECK (octet_length(VALUE) BETWEEN 1 AND 255 AND VALUE !~ '[^!-~]');
-- A letter for what each attempt came to; a hyphen for one that nobody lived to record.
CREATE DOMAIN semel.call_attempts AS text COLLATE "C" CHECK (octet_length(VALUE) <= 100 AND VALUE !~ '[^-rxtug]');
-- An input, a result or a failure. It leaves room for a nonce and a tag of 40 bytes where it is sealed.
CREATE DOMAIN semel.flow_bytes AS bytea CHECK (octet_length(VALUE) <= 1024 * 1024 + 40);
CREATE DOMAIN semel.flow_cause AS text CHECK (octet_length(VALUE) <= 4096);
CREATE DOMAIN semel.seal_id AS text COLLATE "C" CHECK (octet_length(VALUE) BETWEEN 1 AND 64);

CREATE TABLE semel.flows (
    execution           uuid NOT NULL,
    tenant              semel.message_name NOT NULL,
    operation           semel.message_name NOT NULL,
    -- Its bounds are those of the key's row.
    key                 text COLLATE "C" NOT NULL,
    flow                semel.flow_name NOT NULL,
    input               semel.flow_bytes NOT NULL,
    sealed_by           semel.seal_id,
    begun_at            timestamptz NOT NULL,
    -- In which history of the database it began, as 64 bits of a hash. In another one, calls may have been made that
    -- the steps do not know of.
    incarnation         bigint NOT NULL,
    -- How many runs in a row ended in an error that may pass, and the last error, or why it is held.
    failures            integer NOT NULL DEFAULT 0,
    cause               semel.flow_cause,
    -- Why it is being undone, if it is.
    unwinding           semel.flow_bytes,
    unwinding_sealed_by semel.seal_id,
    -- An operator asked for it to be undone.
    cancelled           boolean NOT NULL DEFAULT false,
    -- An operator let it go on, and nobody has taken it over since.
    released            boolean NOT NULL DEFAULT false,
    -- Its worker ended the lease, and nobody has taken it over since.
    paused              boolean NOT NULL DEFAULT false,
    -- How many steps are recorded, so that nobody has to count them: that would conflict with steps of other flows
    -- where transactions are SERIALIZABLE.
    steps               smallint NOT NULL DEFAULT 0,
    CONSTRAINT flows_pkey PRIMARY KEY (execution)
) WITH (fillfactor = 80);

-- For operators, who see the newest first. It grows at its right edge.
CREATE INDEX flows_begun_at ON semel.flows (begun_at);

CREATE TABLE semel.flow_steps (
    execution    uuid NOT NULL,
    -- The name is the identity; the ordinal says in which order steps were first recorded.
    step         semel.step_name NOT NULL,
    ordinal      semel.step_ordinal NOT NULL,
    kind         semel.step_kind NOT NULL,
    state        semel.step_state NOT NULL,
    result       semel.flow_bytes,
    sealed_by    semel.seal_id,
    -- The intent of a call. One without a provider is known by what a look-up found, or has to be found by a person.
    provider     semel.flow_name,
    derived_key  semel.derived_key,
    attempts     semel.call_attempts,
    cause        semel.flow_cause,
    recorded_at  timestamptz NOT NULL,
    settled_at   timestamptz,
    -- When the first attempt was counted, from which the provider's window is measured, and when the last one was.
    sent_at      timestamptz,
    attempted_at timestamptz,
    -- A step is recorded once, and with it what it did (I2).
    CONSTRAINT flow_steps_pkey PRIMARY KEY (execution, step),
    CONSTRAINT flow_steps_settled CHECK ((state IN ('done', 'failed')) = (result IS NOT NULL))
) WITH (fillfactor = 80);

-- Calls that nobody knows the outcome of: few, and always counted.
CREATE INDEX flow_steps_unknown ON semel.flow_steps (execution) WHERE state = 'unknown';

-- Flows come and go with their keys.
ALTER TABLE semel.flows SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);
ALTER TABLE semel.flow_steps SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);

-- What operators did to a flow.
CREATE INDEX audit_execution ON semel.audit (execution) WHERE execution IS NOT NULL;

-- The flow's name again, so that an index tells what is due of each without the others' backlog. A key that is no flow
-- has none. The table is locked while its indexes are made; where somebody keeps it in use for longer than this,
-- migrate again later.
SELECT set_config('lock_timeout', '10s', true);
ALTER TABLE semel.keys ADD COLUMN flow text COLLATE "C";
CREATE INDEX keys_flows ON semel.keys (flow, lease_expires_at) WHERE flow IS NOT NULL AND state = 'in_progress';
-- For the reaper, which deletes few of them at a time: all that is recorded of them goes along.
CREATE INDEX keys_flows_expire ON semel.keys (expires_at) WHERE flow IS NOT NULL AND state <> 'in_progress';
SELECT set_config('lock_timeout', '0', true);

-- Whoever works with keys goes on doing so while the database is upgraded: reaping a key forgets its flow.
DO $$
DECLARE
    v_grant record;
BEGIN
    FOR v_grant IN
        SELECT a.privilege_type, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee
        FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = 'semel.keys'::regclass AND a.grantee <> c.relowner
          AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    LOOP
        EXECUTE format('GRANT %s ON semel.flows, semel.flow_steps TO %s', v_grant.privilege_type, v_grant.grantee);
    END LOOP;
END
$$;
