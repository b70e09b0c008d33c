-- What a person did to a flow, as the next worker has to know it.

-- Since when its life is counted: since somebody let it go on, if that is later than its beginning. However long it was
-- held, a flow that goes on has its life before it.
ALTER TABLE semel_flows ADD COLUMN lives_from INTEGER;

-- In which history of this file somebody said that a call did not happen. Restored to a time before the next attempt
-- was counted, the row says the same, and the call may have been made.
ALTER TABLE semel_flow_steps ADD COLUMN resolved_in TEXT
    CONSTRAINT semel_flow_steps_resolved_in CHECK (length(resolved_in) BETWEEN 1 AND 64);
