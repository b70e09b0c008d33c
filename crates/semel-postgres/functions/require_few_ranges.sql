-- Refuses to go on when the sequences of a lane form more than 1,000 ranges (I12): SM011, with the lane and the topic
-- as the detail. So many messages were not applied while later ones were.
CREATE OR REPLACE FUNCTION semel.require_few_ranges(p_applied int8multirange, p_topic text, p_lane smallint)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    -- A range takes at least its two bounds of 8 bytes, so what is smaller need not be counted.
    IF pg_column_size(p_applied) <= 16 * 1000 THEN
        RETURN;
    END IF;
    IF (SELECT count(*) FROM unnest(p_applied)) > 1000 THEN
        RAISE EXCEPTION 'lane % of topic % has too many gaps before messages that were applied', p_lane, p_topic
            USING ERRCODE = 'SM011', DETAIL = concat(p_lane, ' ', p_topic),
            HINT = 'Apply the messages that are missing; nothing more is accepted until a gap closes.';
    END IF;
END
$$;
