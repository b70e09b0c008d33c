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
    match &home {
        Home::Sqlite(file) => Connection::open(file.path()).unwrap().execute_batch(&script).unwrap(),
        Home::Postgres(database) => {
            let mut psql = tokio::process::Command::new("psql");
            psql.args(["-v", "ON_ERROR_STOP=1", "-q", "-X", &database.url()]).stdin(Stdio::piped());
            let mut running = psql.spawn().expect("psql is installed");
            running.stdin.take().unwrap().write_all(script.as_bytes()).await.unwrap();
            assert!(running.wait().await.unwrap().success());
        }
    }
    let listed = semel(&["keys", "list", "--json", "--database-url", &home.url()]).succeeded();
    assert_eq!(listed.trim(), "[]");
    let second = semel(&["migrate", "--database-url", &home.url()]).succeeded();
    assert_eq!(second, "nothing to apply: the database is up to date\n");
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
