-- Lines, and flows that have each of their three steps once.
SELECT (SELECT count(*) FROM bench_lines),
       (SELECT count(*) FROM (SELECT l.flow FROM bench_lines l GROUP BY l.flow
                              HAVING count(*) = 3 AND count(DISTINCT l.step) = 3))
