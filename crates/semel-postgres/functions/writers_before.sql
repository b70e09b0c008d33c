-- The open transactions of this database whose id is below p_below, with what an operator wants to know of them.
--
-- Snapshots show the ids of the whole cluster; their locks lead to the sessions and so to the databases. An id whose
-- lock is not there has ended, or was given out this moment: then its transaction has not read anything yet.
CREATE OR REPLACE FUNCTION semel.writers_before(p_below xid8)
RETURNS TABLE (pid integer, who text, since timestamptz, state text, query text)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY
    SELECT coalesce(l.pid, 0), coalesce(concat_ws(' ', a.usename, nullif(a.application_name, '')), ''),
           coalesce(a.xact_start, p.prepared, now()),
           coalesce(a.state, CASE WHEN p.gid IS NOT NULL THEN 'prepared as ' || p.gid END, ''),
           coalesce(left(a.query, 200), '')
    FROM pg_snapshot_xip(pg_current_snapshot()) x
    JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.mode = 'ExclusiveLock'
                   AND l.transactionid = x::xid
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    LEFT JOIN pg_prepared_xacts p ON p.transaction = x::xid
    WHERE x < p_below
      AND coalesce(a.datname, p.database, current_database()) = current_database()
    ORDER BY 3;
END
$$;
