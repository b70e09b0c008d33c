-- Accepts a message by the id that its producer gave it, in the transaction of the consumer's effect. True: it has not
-- been seen; apply it. False: it has been seen and its effect is committed; apply nothing, and acknowledge it.
--
-- After the commit it counts as seen, together with the effect; after a rollback, also to a savepoint, it does not
-- (I6). Whoever accepts the same message at the same time waits until this transaction has ended: the unique index is
-- the judge, and a look before the insert would find nothing in both. Transactions that accept several messages accept
-- them in an order that all share, or call semel.accept_ids; otherwise two may deadlock and one of them is rolled back.
--
-- The same message applies again in another generation.
CREATE OR REPLACE FUNCTION semel.accept(p_consumer text, p_message_id text, p_generation integer DEFAULT 0)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_consumer integer := semel.accepting_consumer(p_consumer);
BEGIN
    INSERT INTO semel.inbox (consumer, generation, message_id, received_at)
    VALUES (v_consumer, p_generation, p_message_id, clock_timestamp())
    ON CONFLICT ON CONSTRAINT inbox_pkey DO NOTHING;
    RETURN FOUND;
END
$$;
