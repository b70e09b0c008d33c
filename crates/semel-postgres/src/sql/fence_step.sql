-- The fence of a step of a flow. What its statements emit or stage by themselves is numbered in its run ($7), too.
SELECT semel.fence($1, $2, $3, $4, $5, $6), set_config('semel.fenced', $4::text, true),
       set_config('semel.execution', $7, true)
