-- Whether this transaction is the one that a run began with: its claim or its fence has left the execution here.
SELECT position($1 IN concat_ws(' ', current_setting('semel.claims', true), current_setting('semel.fenced', true))) > 0
