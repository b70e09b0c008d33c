-- Whether somebody asked for the flow to be undone, and nobody has recorded yet that it is.
SELECT EXISTS (SELECT 1 FROM semel_flows WHERE execution = ?1 AND cancelled AND unwinding IS NULL)
