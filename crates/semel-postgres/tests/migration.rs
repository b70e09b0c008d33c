//! The schema, from nothing, step by step, and in the wrong version.
#![allow(clippy::unwrap_used, missing_docs)]

use semel::{Error, Fingerprint, Store};
use semel_postgres::{Options, Postgres, functions, migrations};
use semel_testkit::database::TempDatabase;

/// Everything that the schema consists of, as the catalog tells it.
const DESCRIBE: &str = "
    SELECT format('%s.%s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull) AS line
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'semel'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'semel'::regnamespace
    UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'semel'
    UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'semel'::regnamespace
    ORDER BY line";

async fn describe(database: &TempDatabase) -> Vec<String> {
    let rows = database.connect().await.query(DESCRIBE, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn migrated_step_by_step_equals_fresh() {
    let fresh = TempDatabase::create().await;
    let store = Postgres::open(&fresh.url(), Options::default()).unwrap();
    assert_eq!(store.migrate().await.unwrap().len(), migrations().len());
    assert!(store.migrate().await.unwrap().is_empty(), "there is nothing left to do");
    store.check().await.unwrap();

    // As a program of each earlier version would have left it, with its functions.
    for known in 1..migrations().len() {
        let stepped = TempDatabase::create().await;
        let store = Postgres::open(&stepped.url(), Options::default()).unwrap();
        store.migrate().await.unwrap();
        let client = stepped.connect().await;
        client.batch_execute("DROP SCHEMA semel CASCADE; CREATE SCHEMA semel").await.unwrap();
        let table = "CREATE TABLE semel.migrations (version integer PRIMARY KEY, name text NOT NULL,
                     checksum bytea NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())";
        client.batch_execute(table).await.unwrap();
        for migration in &migrations()[..known] {
            client.batch_execute(migration.sql).await.unwrap();
            let record = "INSERT INTO semel.migrations (version, name, checksum)
                          VALUES ($1, $2, sha256(convert_to($3, 'UTF8')))";
            client.execute(record, &[&migration.version, &migration.name, &migration.sql]).await.unwrap();
        }
        let behind = store.check().await.unwrap_err();
        assert!(behind.to_string().contains("semel migrate"), "{behind}");
        assert_eq!(store.migrate().await.unwrap().len(), migrations().len() - known);
        assert_eq!(describe(&stepped).await, describe(&fresh).await);
    }
}

/// Whoever has rights on keys goes on reaping, evicting and completing while the database is upgraded.
#[tokio::test]
async fn a_role_that_works_with_keys_does_so_after_migrating() {
    let database = TempDatabase::create().await;
    let client = database.connect().await;
    let role = format!("{}_reaper", database.name());
    let setup = "CREATE SCHEMA semel; CREATE TABLE semel.migrations (version integer PRIMARY KEY, name text NOT NULL,
                 checksum bytea NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())";
    client.batch_execute(setup).await.unwrap();
    for migration in migrations().iter().filter(|migration| migration.version < 11) {
        client.batch_execute(migration.sql).await.unwrap();
        let record = "INSERT INTO semel.migrations (version, name, checksum)
                      VALUES ($1, $2, sha256(convert_to($3, 'UTF8')))";
        client.execute(record, &[&migration.version, &migration.name, &migration.sql]).await.unwrap();
    }
    let grant = format!(
        "CREATE ROLE {role}; GRANT USAGE ON SCHEMA semel TO {role};
         GRANT SELECT, UPDATE, DELETE ON semel.keys TO {role}; GRANT SELECT ON semel.keys TO PUBLIC;
         ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
         REVOKE EXECUTE ON FUNCTION semel.key_fits FROM PUBLIC; GRANT EXECUTE ON FUNCTION semel.key_fits TO {role}"
    );
    client.batch_execute(&grant).await.unwrap();
    Postgres::open(&database.url(), Options::default()).unwrap().migrate().await.unwrap();
    let flow = "SELECT semel.stage('shop', 'mail', '{}');
                UPDATE semel.keys SET state = 'completed', status = 200, headers = '', body = '',
                       created_at = now() - interval '2 days', expires_at = now() - interval '1 day'";
    client.batch_execute(flow).await.unwrap();
    let functions = "GRANT EXECUTE ON FUNCTION semel.reap, semel.forget_flows TO";
    client.batch_execute(&format!("{functions} {role}; SET ROLE {role}")).await.unwrap();
    let change = "UPDATE semel.keys SET expires_at = expires_at - interval '1 s'";
    let changed = client.execute(change, &[]).await;
    let reaped = client.query_one("SELECT semel.reap(10)", &[]).await.map(|row| row.get::<_, i64>(0));
    let inserts = client.query_one("SELECT has_table_privilege('semel.flows', 'INSERT')", &[]).await.unwrap();
    client.batch_execute(&format!("RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
    assert_eq!((changed.unwrap(), reaped.unwrap()), (1, 1));
    assert!(!inserts.get::<_, bool>(0), "no more than it has on keys");
}

/// The bounds of `semel.keys` have been written three times, and rows are in the table that each has let pass.
#[tokio::test]
async fn the_bounds_of_a_key_are_what_they_were() {
    let database = TempDatabase::create().await;
    Postgres::open(&database.url(), Options::default()).unwrap().migrate().await.unwrap();
    let client = database.connect().await;
    let bounds = migrations().iter().find(|migration| migration.name == "0010_key_bounds").unwrap().sql;
    let (from, to) = (bounds.find("CREATE FUNCTION").unwrap(), bounds.find("\n$$;").unwrap());
    client.batch_execute(&format!("{}\n$$", &bounds[from..to])).await.unwrap();

    let names = "FROM unnest(ARRAY['t', '', repeat('t', 255), repeat('t', 256), 'é e']) AS tenant,
                      unnest(ARRAY['o', '', repeat('o', 255), repeat('o', 256)]) AS operation,
                      unnest(ARRAY['k', '', repeat('k', 255), repeat('k', 256), 'a b', 'é', '~!']) AS key,
                      unnest(ARRAY[decode(repeat('01', 33), 'hex'), '\\x01', '']) AS fingerprint,
                      (VALUES ('completed', 201::smallint, ''::bytea, ''::bytea, NULL::text, interval '1 day',
                               NULL::text, NULL::bigint, NULL::text, NULL::timestamptz))
                      AS k (state, status, headers, body, sealed_by, retain, holder, epoch, point, lease)";
    let rest = "FROM (VALUES ('t', 'o', 'k', decode(repeat('01', 33), 'hex')))
                     AS n (tenant, operation, key, fingerprint),
                     unnest(ARRAY['completed', 'failed', 'in_progress', 'unknown', 'done']) AS state,
                     unnest(ARRAY[200, 599, 199, 600, NULL]::smallint[]) AS status,
                     unnest(ARRAY['', decode(repeat('00', 16425), 'hex'), NULL]::bytea[]) AS headers,
                     unnest(ARRAY['', NULL]::bytea[]) AS body,
                     unnest(ARRAY[NULL, 's', '', repeat('s', 65)]) AS sealed_by,
                     unnest(ARRAY['1 day', '0']::interval[]) AS retain,
                     unnest(ARRAY[NULL, 'h', '']) AS holder,
                     unnest(ARRAY[NULL, 1, 0]::bigint[]) AS epoch,
                     unnest(ARRAY[NULL, 'p', 'a b']) AS point,
                     unnest(ARRAY[NULL, now()]::timestamptz[]) AS lease";
    for rows in [names, rest] {
        let judge = format!(
            "SELECT count(*) FILTER (WHERE was AND is_now), count(*) FILTER (WHERE NOT was AND NOT is_now), count(*)
             FROM (SELECT semel.key_fits(tenant, operation, key, fingerprint, state, status, headers, body, sealed_by,
                                         now(), now() + retain, holder, epoch, point, lease) IS NOT FALSE AS was,
                          semel.key_fits(ROW(tenant, operation, key, gen_random_uuid(), fingerprint, state, status,
                                             headers, body, sealed_by, now(), now() + retain, holder, epoch, point,
                                             lease, NULL)::semel.keys) IS NOT FALSE AS is_now {rows}) j"
        );
        let row = client.query_one(&judge, &[]).await.unwrap();
        let (passes, fails, all): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        assert_eq!(passes + fails, all, "{rows}");
        assert!(passes > 10 && fails > 10, "{passes} pass and {fails} do not");
    }
    // The largest body, and one byte more.
    for (bytes, fits) in [(16 * 1024 * 1024 + 40, true), (16 * 1024 * 1024 + 41, false)] {
        let insert = format!(
            "INSERT INTO semel.keys (tenant, operation, key, execution, fingerprint, state, status, headers, body,
                                     created_at, expires_at)
             VALUES ('t', 'o', 'k', gen_random_uuid(), semel.fingerprint(''), 'completed', 200, '',
                     decode(repeat('00', {bytes}), 'hex'), now(), now() + interval '1 day')"
        );
        let inserted = client.batch_execute(&insert).await.map_err(|error| error.code().unwrap().code().to_owned());
        assert_eq!(inserted, if fits { Ok(()) } else { Err("23514".to_owned()) });
    }
}

/// The names of events have bounds in fewer words since migration 17. What they say is asked of the words of before.
#[tokio::test]
async fn the_bounds_of_an_event_are_what_they_were() {
    let database = TempDatabase::create().await;
    Postgres::open(&database.url(), Options::default()).unwrap().migrate().await.unwrap();
    let client = database.connect().await;
    let mut values = vec![String::new(), "\n".to_owned(), "é e".to_owned(), "a\u{80}".to_owned(), "^[]$".to_owned()];
    for code in 1..=0x80_u8 {
        let character = char::from(code);
        values.extend(["", "a"].map(|before| format!("{before}{character}")));
        values.extend(["", "a"].map(|before| format!("{before}{character}a")));
    }
    for length in [254, 255, 256, 1023, 1024, 1025] {
        values.extend(["a".repeat(length), "é".repeat(length / 2), format!("{}\n", "a".repeat(length - 1))]);
    }
    for (domain, longest) in [("event_name", 255), ("trace_context", 1024)] {
        let judge = format!(
            "SELECT octet_length(v) BETWEEN 1 AND {longest} AND v COLLATE \"C\" !~ '[\\x01-\\x1f\\x7f]'
             FROM (SELECT $1::text AS v) t"
        );
        let cast = format!("SELECT $1::text::semel.{domain}::text");
        let (mut passes, mut fails) = (0, 0);
        for value in &values {
            let fits: bool = client.query_one(&judge, &[value]).await.unwrap().get(0);
            let taken = client.query_one(&cast, &[value]).await;
            let refused = taken.map_err(|error| error.code().unwrap().code().to_owned()).err();
            assert_eq!(refused.as_deref(), (!fits).then_some("23514"), "{domain}: {value:?}");
            if fits { passes += 1 } else { fails += 1 }
        }
        assert!(passes > 10 && fails > 10, "{passes} pass and {fails} do not");
    }
}

#[tokio::test]
async fn a_printed_schema_equals_a_migrated_one() {
    let (migrated, printed) = (TempDatabase::create().await, TempDatabase::create().await);
    Postgres::open(&migrated.url(), Options::default()).unwrap().migrate().await.unwrap();
    let client = printed.connect().await;
    client.batch_execute(&semel_postgres::schema_sql()).await.unwrap();
    assert_eq!(describe(&printed).await, describe(&migrated).await);
    let (recorded, rows) = ("SELECT name, checksum FROM semel.functions ORDER BY name", migrated.connect().await);
    let checksums = async |client: &tokio_postgres::Client| -> Vec<(String, Vec<u8>)> {
        client.query(recorded, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    assert_eq!(checksums(&client).await, checksums(&rows).await);
    Postgres::connect(&printed.url(), Options::default()).await.unwrap();
    assert!(!functions().is_empty());
}

/// A program that starts leaves functions alone that are as it has them, and makes those again that are not.
#[tokio::test]
async fn only_functions_that_differ_are_replaced() {
    let database = TempDatabase::create().await;
    let store = Postgres::open(&database.url(), Options::default()).unwrap();
    store.migrate().await.unwrap();
    let (client, made) = (database.connect().await, describe(&database).await);
    let rows = "SELECT proname::text, xmin::text FROM pg_proc WHERE pronamespace = 'semel'::regnamespace ORDER BY 1";
    let versions = async || -> Vec<(String, String)> {
        let rows = client.query(rows, &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    let before = versions().await;
    store.migrate().await.unwrap();
    assert_eq!(versions().await, before);
    let other = "DROP FUNCTION semel.lane; UPDATE semel.functions SET checksum = '' WHERE name = 'claim'";
    client.batch_execute(other).await.unwrap();
    store.migrate().await.unwrap();
    let after = versions().await;
    let replaced = after.iter().filter(|function| !before.contains(function)).map(|(name, _)| name.as_str());
    assert_eq!(replaced.collect::<Vec<_>>(), ["claim", "lane"]);
    assert_eq!(describe(&database).await, made);
}

#[tokio::test]
async fn several_processes_may_migrate_at_once() {
    let database = TempDatabase::create().await;
    let mut migrating = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let store = Postgres::open(&database.url(), Options::default()).unwrap();
        migrating.spawn(async move { store.migrate().await.unwrap().len() });
    }
    assert_eq!(migrating.join_all().await.iter().sum::<usize>(), migrations().len());
}

#[tokio::test]
async fn a_database_without_the_schema_says_what_to_run() {
    let database = TempDatabase::create().await;
    let refused = Postgres::connect(&database.url(), Options::default()).await.unwrap_err();
    assert!(matches!(refused, Error::Schema(_)) && refused.to_string().contains("semel migrate"), "{refused}");
}

#[tokio::test]
async fn a_newer_schema_and_an_edited_migration_are_refused() {
    let database = TempDatabase::create().await;
    let store = Postgres::open(&database.url(), Options::default()).unwrap();
    store.migrate().await.unwrap();
    let client = database.connect().await;
    client.batch_execute("UPDATE semel.migrations SET checksum = '' WHERE version = 2").await.unwrap();
    assert!(store.migrate().await.unwrap_err().to_string().contains("0002_keys"));
    client.batch_execute("INSERT INTO semel.migrations VALUES (999, 'later', '')").await.unwrap();
    for refused in [store.migrate().await.unwrap_err(), store.check().await.unwrap_err()] {
        assert!(refused.to_string().contains("newer program"), "{refused}");
    }
}

#[tokio::test]
async fn sql_and_rust_make_the_same_fingerprint() {
    let database = TempDatabase::create().await;
    Postgres::open(&database.url(), Options::default()).unwrap().migrate().await.unwrap();
    let client = database.connect().await;
    for request in [b"".as_slice(), b"4200", &[0, 255, 10]] {
        let made: Vec<u8> = client.query_one("SELECT semel.fingerprint($1)", &[&request]).await.unwrap().get(0);
        assert_eq!(made, Fingerprint::of_bytes(request).as_bytes());
    }
}
