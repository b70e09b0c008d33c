-- demo_intents and demo_deliveries: what clients sent and were told, and how often each event reached the consumer.
-- payments_charges and payments_accounts: effects. semel_events: events, two for each charge. payments_receipts and
-- payments_balances: what the consumer made of them. Each intent asked for an amount of its own: its number.
WITH charged AS (SELECT amount AS intent, count(*) AS times FROM payments_charges GROUP BY amount),
announced AS (
    SELECT json_extract(CAST(payload AS TEXT), '$.id') AS charge, count(*) AS times FROM semel_events
    WHERE type = 'charge.created' GROUP BY 1
),
changed AS (
    SELECT books.version, books.balance, coalesce(made.applied, 0) AS applied, coalesce(made.amount, 0) AS amount
    FROM payments_accounts AS books LEFT JOIN payments_balances AS made ON made.account = books.id
),
twice (charged, announced, applied) AS (SELECT
    (SELECT coalesce(sum(times - 1), 0) FROM charged),
    (SELECT coalesce(sum(times - 1), 0) FROM announced),
    (SELECT coalesce(sum(issued - 1), 0) FROM payments_receipts)
        + (SELECT coalesce(sum(max(applied - version, 0)), 0) FROM changed)
),
never (charged, announced, applied) AS (SELECT
    (SELECT count(*) FROM (SELECT number FROM demo_intents EXCEPT SELECT intent FROM charged)),
    (SELECT count(*) FROM (SELECT id FROM payments_charges EXCEPT SELECT charge FROM announced)),
    (SELECT count(*) FROM (SELECT id FROM payments_charges EXCEPT SELECT charge FROM payments_receipts))
        + (SELECT coalesce(sum(max(version - applied, 0)), 0) FROM changed)
)
SELECT 'intents' AS figure, count(*) AS number FROM demo_intents
UNION ALL SELECT 'attempts', coalesce(sum(attempts), 0) FROM demo_intents
UNION ALL SELECT 'replays', coalesce(sum(replays), 0) FROM demo_intents
UNION ALL SELECT 'effects', count(*) FROM payments_charges
UNION ALL SELECT 'events', count(*) FROM semel_events
UNION ALL SELECT 'deliveries', coalesce(sum(deliveries), 0) FROM demo_deliveries
UNION ALL SELECT 'applied', (SELECT coalesce(sum(issued), 0) FROM payments_receipts)
                                + (SELECT coalesce(sum(applied), 0) FROM payments_balances)
UNION ALL SELECT 'duplicates', charged + announced + applied FROM twice
UNION ALL SELECT 'lost', charged + announced + applied FROM never
UNION ALL SELECT 'charged twice', charged FROM twice
UNION ALL SELECT 'announced twice', announced FROM twice
UNION ALL SELECT 'applied twice', applied FROM twice
UNION ALL SELECT 'never charged', charged FROM never
UNION ALL SELECT 'never announced', announced FROM never
UNION ALL SELECT 'never applied', applied FROM never
UNION ALL SELECT 'answered wrongly', count(*) FROM demo_intents AS intent
    LEFT JOIN payments_charges AS charge ON charge.id = intent.charge
    WHERE intent.answers <> 1 OR charge.amount IS NOT intent.number
UNION ALL SELECT 'balances apart', count(*) FROM changed WHERE balance <> amount;
