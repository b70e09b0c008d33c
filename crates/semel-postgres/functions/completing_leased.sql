-- What completing leased work needs besides its row: see semel.fencing. A row that is not this worker's any more is
-- SM001 (I7), a flow that is to be undone SM014.
CREATE OR REPLACE FUNCTION semel.completing_leased(p_execution uuid, p_is_ours boolean) RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT p_is_ours THEN
        RAISE EXCEPTION 'the lease of execution % was lost', p_execution USING ERRCODE = 'SM001';
    END IF;
    PERFORM semel.require_wanted(p_execution);
    RETURN semel.fencing(p_execution);
END
$$;
