-- Gives the held events of a key new sequences, after which the first is to be tried at once.
CREATE OR REPLACE FUNCTION semel.renumber_key(p_ordering_key text, p_seqs bigint[], p_sequences bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE semel.held_keys h SET state = 'retrying', attempts = 0, retry_at = clock_timestamp()
    WHERE h.ordering_key = p_ordering_key;
    UPDATE semel.held_events e SET sequence = n.sequence
    FROM unnest(p_seqs, p_sequences) AS n (seq, sequence)
    WHERE e.ordering_key = p_ordering_key AND e.seq = n.seq;
    -- A replay gives them the sequences they had.
    INSERT INTO semel.redriven AS r (id, seq, lane, incarnation, sequence)
    SELECT e.id, e.seq, e.lane, semel.incarnation_hash(), e.sequence FROM semel.held_events e
    WHERE e.ordering_key = p_ordering_key AND e.seq = ANY (p_seqs)
    ON CONFLICT (id) DO UPDATE SET sequence = excluded.sequence, incarnation = excluded.incarnation;
END
$$;
