-- Keys that have run, with replies as they are stored.
INSERT INTO semel.keys (tenant, operation, key, execution, fingerprint, state, status, headers, body, created_at,
                        expires_at)
SELECT 'bench', 'charge', 'key-' || n, gen_random_uuid(), $2::bytea, 'completed', 201,
       convert_to(E'content-type: application/json\r\n', 'UTF8'),
       convert_to(format('{"id":"ch_%s","status":"succeeded","amount":42,"currency":"EUR"}', lpad(n::text, 16, '0')),
                  'UTF8'),
       clock_timestamp(), clock_timestamp() + interval '1 day'
FROM generate_series(0, $1::bigint - 1) AS n
