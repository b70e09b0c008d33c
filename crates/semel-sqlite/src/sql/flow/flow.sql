-- What a worker gets of a flow, and who worked on it last.
SELECT semel_flows.flow, begun_at, failures, cancelled, released, paused,
       incarnation <> (SELECT incarnation FROM semel_outbox),
       semel_flows.sealed_by, input, unwinding_sealed_by, unwinding, holder,
       max(begun_at, coalesce(lives_from, begun_at))
FROM semel_flows
JOIN semel_keys USING (tenant, operation, key, execution)
WHERE semel_flows.execution = ?1
