-- One that was dropped is made again.
SELECT f.name, f.checksum
FROM semel.functions f
WHERE EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'semel'::regnamespace AND p.proname = f.name)
