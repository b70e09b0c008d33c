-- An id is kept for as long as its message waits as a dead letter: forgotten before, the message would apply by itself
-- and once more from its letter. This is how the reaper finds such letters.
CREATE INDEX dead_letters_waiting ON semel.dead_letters (consumer, generation, message_id) WHERE state <> 'applied';
