-- Nothing of the tables changes. From here on, processes claim by a function that older databases do not have, so a
-- program that does must not start on those.
SELECT NULL;
