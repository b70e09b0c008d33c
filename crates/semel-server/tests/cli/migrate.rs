//! `semel migrate`.

use std::process::Stdio;

use semel_sqlite::rusqlite::Connection;
use tokio::io::AsyncWriteExt;

use crate::harness::{Home, on_both_stores, semel};

on_both_stores!(what_was_applied_is_told_and_a_second_run_applies_nothing, the_printed_script_equals_a_migration);

async fn what_was_applied_is_told_and_a_second_run_applies_nothing(home: Home) {
    let first = semel(&["migrate", "--database-url", &home.url()]).succeeded();
    assert!(first.starts_with("applied 0001_"), "{first}");
    let second = semel(&["migrate", "--database-url", &home.url()]).succeeded();
    assert_eq!(second, "nothing to apply: the database is up to date\n");
}

async fn the_printed_script_equals_a_migration(home: Home) {
    let scheme = if matches!(home, Home::Sqlite(_)) { "sqlite:unused.db" } else { "postgres://" };
    let script = semel(&["migrate", "--print", "--database-url", scheme]).succeeded();
    let migrated = match &home {
        Home::Sqlite(file) => {
            Connection::open(file.path()).unwrap().execute_batch(&script).unwrap();
            Home::sqlite()
        }
        Home::Postgres(database) => {
            let mut psql = tokio::process::Command::new("psql");
            psql.args(["-v", "ON_ERROR_STOP=1", "-q", "-X", &database.url()]).stdin(Stdio::piped());
            let mut running = psql.spawn().expect("psql is installed");
            running.stdin.take().unwrap().write_all(script.as_bytes()).await.unwrap();
            assert!(running.wait().await.unwrap().success());
            Home::postgres().await
        }
    };
    semel(&["migrate", "--database-url", &migrated.url()]).succeeded();
    assert_eq!(schema(&home).await, schema(&migrated).await);

    let listed = semel(&["keys", "list", "--json", "--database-url", &home.url()]).succeeded();
    assert_eq!(listed.trim(), "[]");
    let second = semel(&["migrate", "--database-url", &home.url()]).succeeded();
    assert_eq!(second, "nothing to apply: the database is up to date\n");
}

/// Everything that Semel has made in a database, as the database tells it.
async fn schema(home: &Home) -> Vec<String> {
    match home {
        Home::Sqlite(file) => {
            let connection = Connection::open(file.path()).unwrap();
            let made = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL
                UNION ALL SELECT version || name || checksum FROM semel_migrations ORDER BY 1";
            let mut rows = connection.prepare(made).unwrap();
            rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        }
        Home::Postgres(database) => {
            let made = "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'semel'::regnamespace
                UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint
                    WHERE connamespace = 'semel'::regnamespace
                UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'semel'
                UNION ALL SELECT concat_ws(' ', table_name, ordinal_position, column_name, data_type, is_nullable,
                    column_default) FROM information_schema.columns WHERE table_schema = 'semel'
                UNION ALL SELECT concat_ws(' ', version, name, checksum) FROM semel.migrations ORDER BY 1";
            let rows = database.connect().await.query(made, &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        }
    }
}

#[test]
fn printing_needs_no_database() {
    let script = semel(&["migrate", "--print", "--database-url", "postgres://192.0.2.1/nowhere"]).succeeded();
    assert!(script.contains("CREATE TABLE semel.keys") && script.contains("FUNCTION semel.claim"), "{script}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("unused.db");
    let script = semel(&["migrate", "--print", "--database-url", &format!("sqlite:{}", path.display())]).succeeded();
    assert!(script.contains("CREATE TABLE semel_keys"), "{script}");
    assert!(!path.exists());
}
