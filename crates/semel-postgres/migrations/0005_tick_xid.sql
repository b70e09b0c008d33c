-- A tick's own transaction id. Whoever has a higher one drew its seqs after seq_upto was read. Ticks from before this
-- step have none, and the tick after such a one looks at all of its events to find the lowest seq.
ALTER TABLE semel.ticks ADD COLUMN xid xid8;

-- It returns more than it did.
DROP FUNCTION IF EXISTS semel.page(bigint, bigint, smallint[], integer, bigint);
