-- What makes a row of semel.keys slow to insert: how each is dropped, and how it is made again.
SELECT format('ALTER TABLE semel.keys DROP CONSTRAINT %I', c.conname),
       format('ALTER TABLE semel.keys ADD CONSTRAINT %I %s', c.conname, pg_get_constraintdef(c.oid))
FROM pg_constraint c
WHERE c.conrelid = 'semel.keys'::regclass AND c.contype IN ('p', 'c')
UNION ALL
SELECT format('DROP INDEX %s', i.indexrelid::regclass), pg_get_indexdef(i.indexrelid)
FROM pg_index i
WHERE i.indrelid = 'semel.keys'::regclass
  AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid)
