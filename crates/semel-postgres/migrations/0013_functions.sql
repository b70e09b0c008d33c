-- The functions as they were last made, so that a program that starts replaces those only that it has otherwise.
CREATE TABLE semel.functions (
    name     text COLLATE "C" PRIMARY KEY,
    -- The SHA-256 of the file.
    checksum bytea NOT NULL
);
