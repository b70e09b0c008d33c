-- An id that this process does not know and that a flow needs which has not ended. What ended flows have recorded is
-- not opened again.
SELECT s.id
FROM semel.seals s
WHERE s.id <> ALL ($1)
  AND EXISTS (
      SELECT FROM semel.flows f
      JOIN semel.keys k ON k.tenant = f.tenant AND k.operation = f.operation AND k.key = f.key
                           AND k.execution = f.execution
      WHERE k.state IN ('in_progress', 'unknown')
        AND (f.sealed_by = s.id OR f.unwinding_sealed_by = s.id
             OR EXISTS (SELECT FROM semel.flow_steps p WHERE p.execution = f.execution AND p.sealed_by = s.id)))
LIMIT 1
