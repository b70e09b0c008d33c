SELECT status, headers, body FROM semel.keys WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
