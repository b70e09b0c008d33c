-- Where a replay of each lane can begin, how far the lane has come, and the positions in between whose counts do not
-- follow from those before. While nothing of a lane is gone, it begins before everything.
WITH kept AS (
    SELECT DISTINCT ON (p.lane, p.id) p.lane::smallint AS lane, p.id, p.tick, p.seq, p.counts::text AS counts,
           p.renumbered
    FROM semel.positions p
    LEFT JOIN semel.histories h ON h.lane = p.lane
    WHERE p.id >= coalesce(h.position, 0) AND p.incarnation = semel.incarnation_hash()
    ORDER BY p.lane, p.id),
starts AS (
    SELECT l.lane::smallint AS lane, coalesce(k.id, 0) AS id, coalesce(k.tick, 0) AS tick,
           coalesce(k.seq, 9223372036854775807) AS seq, coalesce(k.counts, '{}') AS counts
    FROM semel.lanes l
    LEFT JOIN semel.histories h ON h.lane = l.lane
    LEFT JOIN LATERAL (SELECT k.* FROM kept k
                       WHERE k.lane = h.lane ORDER BY k.id LIMIT 1) k ON true),
ends AS (
    SELECT DISTINCT ON (k.lane) k.lane, k.tick, k.seq FROM kept k ORDER BY k.lane, k.id DESC)
SELECT s.lane, s.tick, s.seq, s.counts, true AS start, s.id, coalesce(e.tick, 0) AS upto_tick,
       coalesce(e.seq, 9223372036854775807) AS upto_seq
FROM starts s
LEFT JOIN ends e ON e.lane = s.lane
UNION ALL
SELECT k.lane, k.tick, k.seq, k.counts, false, k.id, 0, 0
FROM kept k
JOIN starts s ON s.lane = k.lane AND k.id > s.id
WHERE k.renumbered
ORDER BY lane, id
