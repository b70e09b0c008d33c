-- Nothing of the tables changes. From here on, workers count on functions that refuse whatever is new of a flow that is
-- to be undone, so a program that does must not start on older ones, nor an older one put its own back.
SELECT NULL;
