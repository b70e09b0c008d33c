-- Sets a message aside with the cause, and returns the letter's id. Call it in a transaction that has just accepted the
-- message as new, without an effect and without semel.accept_versions: after the commit it counts as seen and is kept,
-- after a rollback neither. The entity whose version it carries stays where it is.
--
-- p_headers is null or a JSON array of [name, value].
CREATE OR REPLACE FUNCTION semel.dead_letter(
    p_consumer text, p_generation integer, p_message_id text, p_topic text, p_payload bytea, p_cause text,
    p_attempts integer DEFAULT 1, p_ordering_key text DEFAULT '', p_message_type text DEFAULT '',
    p_producer text DEFAULT '', p_content_type text DEFAULT '', p_headers text DEFAULT NULL,
    p_incarnation text DEFAULT NULL, p_sequence_topic text DEFAULT NULL, p_lane integer DEFAULT NULL,
    p_sequence bigint DEFAULT NULL, p_source text DEFAULT NULL, p_record_topic text DEFAULT NULL,
    p_partition integer DEFAULT NULL, p_read_from bigint DEFAULT NULL, p_record_offset bigint DEFAULT NULL,
    p_entity text DEFAULT NULL, p_version bigint DEFAULT NULL, p_each boolean DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_consumer integer := semel.accepting_consumer(p_consumer);
    v_headers  jsonb;
    v_id       bigint;
BEGIN
    -- What is not would be stored and could never be read again. The one character that the database does not know may
    -- be there all the same: escaped as it is, it is stored as it is.
    v_headers := replace(p_headers, '\u0000', '\ufffd')::jsonb;
    IF jsonb_typeof(v_headers) <> 'array' OR EXISTS (
        SELECT FROM jsonb_array_elements(v_headers) h
        WHERE jsonb_typeof(h) <> 'array'
           OR (SELECT array_agg(jsonb_typeof(e)) FROM jsonb_array_elements(h) e)
              IS DISTINCT FROM '{string,string}'::text[]) THEN
        RAISE EXCEPTION 'the headers of a message are a JSON array of [name, value]'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO semel.dead_letters (
        consumer, generation, message_id, topic, payload, cause, attempts, ordering_key, message_type, producer,
        content_type, headers, incarnation, sequence_topic, lane, sequence, source, record_topic, partition, read_from,
        record_offset, entity, version, each)
    VALUES (
        v_consumer, p_generation, p_message_id, p_topic, p_payload, p_cause, p_attempts, p_ordering_key, p_message_type,
        p_producer, p_content_type, p_headers, p_incarnation, p_sequence_topic, p_lane, p_sequence, p_source,
        p_record_topic, p_partition, p_read_from, p_record_offset, p_entity, p_version, p_each)
    RETURNING id INTO v_id;
    RETURN v_id;
END
$$;
