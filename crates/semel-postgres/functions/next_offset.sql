-- Where a consumer reads on in a partition of Kafka; null if nothing is stored of it. Whatever is read from there, only
-- semel.accept_offsets decides.
CREATE OR REPLACE FUNCTION semel.next_offset(
    p_consumer text, p_source text, p_topic text, p_partition integer, p_generation integer DEFAULT 0) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT o.next FROM semel.consumers c JOIN semel.offsets o ON o.consumer = c.id
            WHERE c.name = p_consumer AND o.generation = p_generation AND o.source = p_source AND o.topic = p_topic
              AND o.partition = p_partition);
END
$$;
