-- What the locks of ordering keys are keyed with, and where: the table, and the history of the database.
SELECT i.secret, 'semel.installation'::regclass::oid, semel.incarnation_hash()::text FROM semel.installation i
