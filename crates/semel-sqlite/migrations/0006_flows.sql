-- Flows: work of several steps, on leased keys.
--
-- The key of a flow is a row of semel_keys that names the flow. It is in_progress, with lease and epoch, while the flow
-- lives, completed or failed with the reply at its end, and unknown while it is held for a person. semel_flows has what
-- the flow began with and how it fares, and semel_flow_steps a row per step. A commit and a pause are recorded when
-- they are done. A call is recorded before it is made, with the key by which its provider recognises it, and every
-- attempt is counted before it leaves. A call without a provider is one that this file knows nothing of but what a
-- look-up found or a person has to find.
--
-- Only whoever holds the key's lease writes here, and operators. All of it goes with the key.

-- The flow's name again, so that an index tells what is due. A key that is no flow has none.
ALTER TABLE semel_keys ADD COLUMN flow TEXT
    CONSTRAINT semel_keys_flow CHECK (length(flow) BETWEEN 1 AND 100 AND flow NOT GLOB '*[^!-~]*');

CREATE INDEX semel_keys_flows ON semel_keys (flow, lease_expires_at)
WHERE flow IS NOT NULL AND state = 'in_progress';

-- Those that are held for a person: few, and kept until somebody resolves them.
CREATE INDEX semel_keys_held ON semel_keys (flow) WHERE flow IS NOT NULL AND state = 'unknown';

CREATE TABLE semel_flows (
    -- The rowid grows with every insertion, so it lists flows newest first without another index.
    id                  INTEGER PRIMARY KEY,
    execution           BLOB    NOT NULL,
    tenant              TEXT    NOT NULL,
    operation           TEXT    NOT NULL,
    key                 TEXT    NOT NULL,
    flow                TEXT    NOT NULL,
    begun_at            INTEGER NOT NULL,
    -- Which history of this file it began in. In another one, calls may have been made that the steps do not know of.
    incarnation         TEXT    NOT NULL,
    -- How many runs in a row ended in an error that may pass, and the last error or why it is held.
    failures            INTEGER NOT NULL DEFAULT 0,
    cause               TEXT,
    -- An operator asked for it to be undone.
    cancelled           INTEGER NOT NULL DEFAULT 0,
    -- An operator let it go on, and nobody has taken it over since.
    released            INTEGER NOT NULL DEFAULT 0,
    -- Its worker ended the lease, and nobody has taken it over since.
    paused              INTEGER NOT NULL DEFAULT 0,
    sealed_by           TEXT,
    unwinding_sealed_by TEXT,
    -- Why it is being undone, if it is.
    unwinding           BLOB,
    -- Last, so that what stands before it is read without it.
    input               BLOB    NOT NULL,

    CONSTRAINT semel_flows_once UNIQUE (execution),

    CONSTRAINT semel_flows_execution CHECK (length(execution) = 16),
    CONSTRAINT semel_flows_tenant CHECK (length(CAST(tenant AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT semel_flows_operation CHECK (length(CAST(operation AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT semel_flows_key CHECK (length(key) BETWEEN 1 AND 255 AND key NOT GLOB '*[^!-~]*'),
    CONSTRAINT semel_flows_flow CHECK (length(flow) BETWEEN 1 AND 100 AND flow NOT GLOB '*[^!-~]*'),
    CONSTRAINT semel_flows_incarnation CHECK (length(incarnation) BETWEEN 1 AND 64),
    CONSTRAINT semel_flows_failures CHECK (failures BETWEEN 0 AND 4294967295),
    CONSTRAINT semel_flows_cause CHECK (length(CAST(cause AS BLOB)) <= 1024),
    CONSTRAINT semel_flows_flags CHECK (cancelled IN (0, 1) AND released IN (0, 1) AND paused IN (0, 1)),
    -- Sealing adds a nonce of 24 bytes and a tag of 16.
    CONSTRAINT semel_flows_input CHECK (length(input) <= 1048576 + 40),
    CONSTRAINT semel_flows_sealed_by CHECK (length(sealed_by) BETWEEN 1 AND 64),
    CONSTRAINT semel_flows_unwinding CHECK (
        length(unwinding) <= 1048576 + 40 AND (unwinding IS NOT NULL OR unwinding_sealed_by IS NULL)
    ),
    CONSTRAINT semel_flows_unwinding_sealed_by CHECK (length(unwinding_sealed_by) BETWEEN 1 AND 64)
) STRICT;

CREATE TABLE semel_flow_steps (
    execution    BLOB    NOT NULL,
    -- Its name is its identity; the ordinal says in which order steps were first recorded.
    step         TEXT    NOT NULL,
    ordinal      INTEGER NOT NULL,
    kind         TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    recorded_at  INTEGER NOT NULL,
    settled_at   INTEGER,
    -- The intent of a call: whom it is made to, under which key, and a letter for what each attempt came to.
    provider     TEXT,
    derived_key  TEXT,
    attempts     TEXT,
    -- When the first attempt was counted, from which the provider's window is measured, and when the last one was.
    sent_at      INTEGER,
    attempted_at INTEGER,
    cause        TEXT,
    sealed_by    TEXT,
    -- Last, so that what stands before it is read without it.
    result       BLOB,

    PRIMARY KEY (execution, step),

    CONSTRAINT semel_flow_steps_execution CHECK (length(execution) = 16),
    -- A compensation adds a prefix of 6 characters.
    CONSTRAINT semel_flow_steps_step CHECK (
        length(step) BETWEEN 1 AND 80 + 6
        AND step NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
        AND instr(step, char(0)) = 0
    ),
    CONSTRAINT semel_flow_steps_ordinal CHECK (ordinal BETWEEN 1 AND 1000),
    CONSTRAINT semel_flow_steps_kind CHECK (kind IN ('commit', 'call', 'sleep')),
    CONSTRAINT semel_flow_steps_state CHECK (state IN ('pending', 'done', 'failed', 'unknown')),
    CONSTRAINT semel_flow_steps_provider CHECK (length(provider) BETWEEN 1 AND 100 AND provider NOT GLOB '*[^!-~]*'),
    CONSTRAINT semel_flow_steps_derived_key CHECK (
        length(derived_key) BETWEEN 1 AND 255 AND derived_key NOT GLOB '*[^!-~]*'
    ),
    CONSTRAINT semel_flow_steps_attempts CHECK (length(attempts) <= 100 AND attempts NOT GLOB '*[^rxtug-]*'),
    CONSTRAINT semel_flow_steps_cause CHECK (length(CAST(cause AS BLOB)) <= 1024),
    CONSTRAINT semel_flow_steps_sealed_by CHECK (length(sealed_by) BETWEEN 1 AND 64),
    -- A result, or a failure, is there exactly when the step is settled.
    CONSTRAINT semel_flow_steps_result CHECK (
        CASE WHEN state IN ('done', 'failed')
             THEN result IS NOT NULL AND length(result) <= 1048576 + 40 AND settled_at IS NOT NULL
             ELSE result IS NULL AND sealed_by IS NULL AND settled_at IS NULL
        END
    ),
    -- Only a call has an intent, and only a call can be without an end. No attempt is counted without its key (I8).
    CONSTRAINT semel_flow_steps_intent CHECK (
        CASE WHEN kind = 'call'
             THEN attempts IS NOT NULL AND (provider IS NULL) = (derived_key IS NULL)
                 AND (attempts = '' OR (provider IS NOT NULL AND sent_at IS NOT NULL AND attempted_at IS NOT NULL))
             ELSE state IN ('done', 'failed')
                 AND coalesce(provider, derived_key, attempts, sent_at, attempted_at) IS NULL
        END
    )
) STRICT;

-- Calls that nobody knows the outcome of: few, and always counted.
CREATE INDEX semel_flow_steps_unknown ON semel_flow_steps (execution) WHERE state = 'unknown';

-- Whatever deletes a key deletes its flow in the same commit, also on a connection that does not enforce foreign keys.
CREATE TRIGGER semel_keys_flow_goes AFTER DELETE ON semel_keys WHEN OLD.flow IS NOT NULL
BEGIN
    DELETE FROM semel_flow_steps WHERE execution = OLD.execution;
    DELETE FROM semel_flows WHERE execution = OLD.execution;
END;

-- What operators did to a flow.
CREATE INDEX semel_audit_execution ON semel_audit (execution) WHERE execution IS NOT NULL;
