-- For books that were opened before versions were counted.
ALTER TABLE payments_accounts ADD COLUMN version INTEGER NOT NULL DEFAULT 0 CHECK (version >= 0)
