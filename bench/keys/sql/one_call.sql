SELECT bench_charge($1::text, $2::bytea, $3::bigint, $4::bigint, $5::text, $6::bytea, $7::bytea)
