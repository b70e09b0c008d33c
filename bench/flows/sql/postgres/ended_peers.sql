-- durare and DBOS share a schema. What has ended has three steps on record.
SELECT count(*)
FROM dbos.workflow_status s
WHERE s.status = 'SUCCESS'
  AND (SELECT count(*) FROM dbos.operation_outputs o WHERE o.workflow_uuid = s.workflow_uuid) = 3
