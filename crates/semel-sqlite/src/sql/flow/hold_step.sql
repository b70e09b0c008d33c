-- A call that failed is taken back: if its failure holds the flow, a person may know better.
UPDATE semel_flow_steps SET state = 'unknown', settled_at = NULL, sealed_by = NULL, result = NULL
WHERE execution = ?1 AND step = ?2 AND kind = 'call' AND state <> 'done'
