-- Keys $1 to $2 of $3 that have run, random, with the reply that an operation of this benchmark stores. They were made
-- one after the other in six hours that ended $5 hours ago, and are kept for a day.
INSERT INTO semel.keys (tenant, operation, key, execution, fingerprint, state, status, headers, body, created_at,
                        expires_at)
SELECT 'bench', 'charge', gen_random_uuid()::text, gen_random_uuid(), $4::bytea, 'completed', 201,
       convert_to(E'content-type: application/json\r\n', 'UTF8'),
       convert_to(format('{"id":"ch_%s","status":"succeeded","amount":42,"currency":"EUR","description":"one of '
                         'each, to be sent to the usual address","receipt":"r_%s"}',
                         lpad(n::text, 16, '0'), lpad(n::text, 64, '0')), 'UTF8'),
       made.at, made.at + interval '1 day'
FROM generate_series($1::bigint, $2::bigint) AS n
CROSS JOIN LATERAL (
    SELECT now() - make_interval(hours => $5::integer)
           - (1 - n::float8 / $3::float8) * interval '6 hours' AS at) AS made
