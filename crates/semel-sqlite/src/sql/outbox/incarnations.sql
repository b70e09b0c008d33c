-- The file's, and one that a position was stored in: another than the file's, if there is one.
SELECT file.incarnation, coalesce(
    (SELECT lanes.incarnation FROM semel_lanes AS lanes WHERE lanes.incarnation <> file.incarnation LIMIT 1),
    (SELECT lanes.incarnation FROM semel_lanes AS lanes WHERE lanes.incarnation = file.incarnation LIMIT 1)
)
FROM semel_outbox AS file
