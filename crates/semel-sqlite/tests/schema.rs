//! The schema: how it gets into a file, and what it refuses.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{File, ask, completion, fresh, insert};
use semel::{Error, Key, Store, Tx as _};
use semel_sqlite::rusqlite::Connection;
use semel_sqlite::{Options, Sqlite};

fn schema(connection: &Connection) -> Vec<String> {
    let sql = "SELECT sql FROM sqlite_schema WHERE name LIKE 'semel_%' AND sql IS NOT NULL ORDER BY name";
    connection.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[tokio::test]
async fn migrating_twice_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new.db");
    let all =
        ["0001_keys", "0002_outbox", "0003_inbox", "0004_letters", "0005_letter_ids", "0006_flows", "0007_flow_lives"];
    assert_eq!(semel_sqlite::migrate(&path).await.unwrap(), all);
    let before = schema(&Connection::open(&path).unwrap());
    assert!(semel_sqlite::migrate(&path).await.unwrap().is_empty());
    let store = Sqlite::open(&path, Options::default()).await.unwrap();
    assert!(store.migrate().await.unwrap().is_empty());
    store.check().await.unwrap();
    assert_eq!(schema(&Connection::open(&path).unwrap()), before);
}

#[tokio::test]
async fn several_that_migrate_at_once_apply_each_migration_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new.db");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || {
                tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap()
                    .block_on(semel_sqlite::migrate(path))
            })
        })
        .collect();
    let applied: usize = threads.into_iter().map(|thread| thread.join().unwrap().unwrap().len()).sum();
    assert_eq!(applied, semel_sqlite::migrations().count());
}

#[tokio::test]
async fn a_handle_migrates_an_empty_file() {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::open(directory.path().join("new.db"), Options::default()).await.unwrap();
    assert_eq!(store.migrate().await.unwrap().len(), semel_sqlite::migrations().count());
    store.check().await.unwrap();
}

#[tokio::test]
async fn an_unmigrated_file_says_to_migrate() {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::open(directory.path().join("empty.db"), Options::default()).await.unwrap();
    for error in [store.check().await.unwrap_err(), store.claim(&ask(&Key::random())).await.unwrap_err()] {
        assert!(matches!(&error, Error::Schema(text) if text.contains("semel migrate")), "{error:?}");
    }
}

#[tokio::test]
async fn a_schema_newer_than_the_program_is_refused() {
    let file = File::create().await;
    let newer = "INSERT INTO semel_migrations (version, name, checksum, applied_at) VALUES (999, 'later', 'x', 0)";
    file.connection().execute(newer, ()).unwrap();
    let store = file.open().await;
    for error in [store.check().await.unwrap_err(), store.migrate().await.unwrap_err()] {
        assert!(matches!(&error, Error::Schema(text) if text.contains("999") && text.contains("newer")), "{error:?}");
    }
}

#[tokio::test]
async fn a_migration_with_another_text_is_refused() {
    let file = File::create().await;
    file.connection().execute("UPDATE semel_migrations SET checksum = 'x'", ()).unwrap();
    assert!(matches!(file.open().await.check().await, Err(Error::Schema(_))));
    assert!(matches!(semel_sqlite::migrate(file.path()).await, Err(Error::Schema(_))));
}

#[tokio::test]
async fn what_is_not_a_database_file_is_refused_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(Sqlite::open(":memory:", Options::default()).await, Err(Error::Settings(_))));
    let missing = directory.path().join("no such directory/a.db");
    assert!(matches!(Sqlite::open(missing, Options::default()).await, Err(Error::Unavailable(_))));
    let text = directory.path().join("text.db");
    std::fs::write(&text, "this is not a database, and it is long enough to be looked at ".repeat(20)).unwrap();
    assert!(matches!(Sqlite::open(text, Options::default()).await, Err(Error::Unavailable(_))));
    let none = Options { readers: 0, ..Options::default() };
    assert!(matches!(Sqlite::open(directory.path().join("a.db"), none).await, Err(Error::Settings(_))));
}

#[tokio::test]
async fn commits_survive_a_power_failure() {
    let file = File::create().await;
    let store = file.open().await;
    let mut tx = store.begin().await.unwrap();
    let pragma = |name: &'static str| format!("SELECT * FROM pragma_{name}");
    let synchronous: i64 = tx.query_row(&pragma("synchronous"), (), |row| row.get(0)).await.unwrap();
    let journal: String = tx.query_row(&pragma("journal_mode"), (), |row| row.get(0)).await.unwrap();
    let foreign_keys: i64 = tx.query_row(&pragma("foreign_keys"), (), |row| row.get(0)).await.unwrap();
    assert_eq!((synchronous, journal.as_str(), foreign_keys), (2, "wal", 1));
}

#[tokio::test]
async fn the_database_refuses_what_is_out_of_bounds() {
    let file = File::create().await;
    let store = file.open().await;
    let mut tx = fresh(&store, &Key::random()).await;
    insert(&mut tx, "oversize").await.unwrap();
    let mut large = completion(tx.execution());
    large.stored.body = vec![0; semel::reply::MAX_BODY_BYTES + 41].into();
    assert!(matches!(tx.complete(&large).await, Err(Error::Statement(_))));
    assert_eq!(file.effects("oversize"), 0);

    let mut tx = fresh(&store, &Key::new("k").unwrap()).await;
    insert(&mut tx, "row").await.unwrap();
    let done = completion(tx.execution());
    tx.complete(&done).await.unwrap();
    let connection = file.connection();
    for (change, constraint) in [
        ("tenant = ''", "tenant"),
        ("tenant = printf('%.*c', 256, 'x')", "tenant"),
        ("operation = replace(printf('%.*c', 128, 'x'), 'x', 'é')", "operation"),
        ("key = ''", "key"),
        ("key = printf('%.*c', 256, 'x')", "key"),
        ("key = 'a b'", "key"),
        ("execution = x'00'", "execution"),
        ("fingerprint = zeroblob(32)", "fingerprint"),
        ("state = 'done'", "state"),
        ("status = 199", "status"),
        ("status = 600", "status"),
        ("status = NULL", "reply"),
        ("headers = zeroblob(16384 + 41)", "headers"),
        ("sealed_by = printf('%.*c', 65, 'x')", "sealed_by"),
        ("expires_at = created_at", "expiry"),
        ("holder = 'h'", "lease"),
        ("recovery_point = 'p'", "lease"),
        ("state = 'in_progress', status = NULL, headers = NULL, body = NULL", "lease"),
    ] {
        let refused = connection.execute(&format!("UPDATE semel_keys SET {change}"), ()).unwrap_err().to_string();
        assert!(refused.contains(&format!("semel_keys_{constraint}")), "{change}: {refused}");
    }
}

#[tokio::test]
async fn the_database_refuses_events_that_are_out_of_bounds() {
    let file = File::create().await;
    let store = file.open().await;
    let mut tx = store.begin().await.unwrap();
    tx.emit(common::event("key"));
    tx.commit().await.unwrap();
    let connection = file.connection();
    for (table, change, constraint) in [
        ("events", "id = x'00'", "id"),
        ("events", "lane = 64", "lane"),
        ("events", "topic = ''", "topic"),
        ("events", "ordering_key = printf('%.*c', 256, 'x')", "ordering_key"),
        ("events", "type = replace(printf('%.*c', 128, 'x'), 'x', 'é')", "type"),
        ("events", "content_type = ''", "content_type"),
        ("events", "topic = 'a' || char(10) || 'b'", "topic"),
        ("events", "ordering_key = 'é' || char(127)", "ordering_key"),
        ("events", "type = char(1)", "type"),
        ("events", "headers = printf('%.*c', 16387, 'x')", "headers"),
        ("events", "traceparent = printf('%.*c', 1025, 'x')", "traceparent"),
        ("events", "tracestate = printf('%.*c', 1025, 'x')", "tracestate"),
        ("events", "payload = zeroblob(1048577)", "payload"),
        ("lanes", "cursor = -1", "cursor"),
        ("lanes", "history_cursor = 1", "history"),
        ("outbox", "incarnation = ''", "incarnation"),
        ("outbox", "id = 2", "single"),
    ] {
        let refused = connection.execute(&format!("UPDATE semel_{table} SET {change}"), ()).unwrap_err().to_string();
        assert!(refused.contains(&format!("semel_{table}_{constraint}")), "{table}: {change}: {refused}");
    }
    let fresh = "INSERT INTO semel_held_keys VALUES (1, 'key', ?1, ?2, 0, ?3, 0)";
    for (state, attempts, error) in [("lost", 0, ""), ("parked", -1, ""), ("parked", 0, "x".repeat(1025).as_str())] {
        assert!(connection.execute(fresh, (state, attempts, error)).is_err(), "{state} {attempts}");
    }
}

#[tokio::test]
async fn files_have_incarnations_of_their_own_and_audit_rows_outlive_a_migration() {
    let directory = tempfile::tempdir().unwrap();
    let mut incarnations = Vec::new();
    for name in ["one.db", "other.db"] {
        let path = directory.path().join(name);
        let connection = Connection::open(&path).unwrap();
        // A file as the version before left it.
        let script = semel_sqlite::schema_sql();
        let (first, _) = script.split_once("-- 0002_outbox").unwrap();
        connection.execute_batch(&format!("{first} COMMIT;")).unwrap();
        let audit = "INSERT INTO semel_audit (at, actor, action, tenant, operation, key, execution, reason)
                     VALUES (1, 'ada', 'keys evict', 't', 'o', 'k', zeroblob(16), 'a test')";
        connection.execute(audit, ()).unwrap();
        let missing = ["0002_outbox", "0003_inbox", "0004_letters", "0005_letter_ids", "0006_flows", "0007_flow_lives"];
        assert_eq!(semel_sqlite::migrate(&path).await.unwrap(), missing);
        let row = "SELECT id, actor, tenant, reason FROM semel_audit";
        let row: (i64, String, String, String) =
            connection.query_row(row, (), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))).unwrap();
        assert_eq!(row, (1, "ada".to_owned(), "t".to_owned(), "a test".to_owned()));
        let incarnation = "SELECT incarnation FROM semel_outbox";
        incarnations.push(connection.query_row(incarnation, (), |row| row.get::<_, String>(0)).unwrap());
    }
    assert!(incarnations[0].len() == 32 && incarnations[0] != incarnations[1]);
}
