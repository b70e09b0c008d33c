-- With the schema: a connection that durare has migrated with looks into its own alone.
INSERT INTO public.bench_lines (flow, step, amount) VALUES (?, ?, ?)
