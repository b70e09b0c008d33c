-- Cursors are kept: seqs are as good as before. What lies behind them was counted in the incarnation before.
UPDATE semel_lanes
SET relay = NULL, counts = '{}', history_cursor = cursor, history_counts = '{}',
    incarnation = CASE WHEN incarnation IS NULL THEN NULL ELSE ?1 END
