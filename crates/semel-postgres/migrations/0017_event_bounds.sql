-- The bounds of events in fewer words: every function that a domain names is prepared anew by every INSERT, once for
-- each column. They say what they said, so no row has to be looked at, and no table is locked.
ALTER DOMAIN semel.event_name DROP CONSTRAINT event_name_check;
ALTER DOMAIN semel.event_name
    ADD CONSTRAINT event_name_check CHECK (VALUE ~ '^[^\x01-\x1f\x7f]+$' AND octet_length(VALUE) <= 255) NOT VALID;
ALTER DOMAIN semel.trace_context DROP CONSTRAINT trace_context_check;
ALTER DOMAIN semel.trace_context
    ADD CONSTRAINT trace_context_check CHECK (VALUE ~ '^[^\x01-\x1f\x7f]+$' AND octet_length(VALUE) <= 1024) NOT VALID;
