INSERT INTO semel_flows (execution, tenant, operation, key, flow, begun_at, incarnation, sealed_by, input)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, (SELECT incarnation FROM semel_outbox), ?7, ?8)
