-- Headers and trace context are null, as in most services' events.
SELECT semel.emit_all(
    NULL, array_fill($1::text, ARRAY[cardinality($2::text[])]), $2::text[],
    array_fill('bench.happened'::text, ARRAY[cardinality($2::text[])]),
    array_fill('application/octet-stream'::text, ARRAY[cardinality($2::text[])]), $3::bytea[],
    array_fill(NULL::text, ARRAY[cardinality($2::text[])]), array_fill(NULL::text, ARRAY[cardinality($2::text[])]),
    array_fill(NULL::text, ARRAY[cardinality($2::text[])]))
