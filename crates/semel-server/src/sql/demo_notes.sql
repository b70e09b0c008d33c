-- What the demo's clients and the receiving end have noted, beside what the service and the consumer have written.
CREATE TABLE demo_intents (
    -- The amount that it asked for as well: a charge tells its intent.
    number   INTEGER PRIMARY KEY,
    attempts INTEGER NOT NULL,
    replays  INTEGER NOT NULL,
    -- The charge that the client was told, and how many different ones it was told.
    charge   TEXT,
    answers  INTEGER NOT NULL
) STRICT;
CREATE TABLE demo_deliveries (event TEXT PRIMARY KEY, deliveries INTEGER NOT NULL) STRICT;
