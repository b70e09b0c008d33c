//! A file of its own for each test, with a table `effects` to count in.
#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

pub mod flow;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use semel::outbox::{Cursor, PageLimit, Written};
use semel::sink::Lane;
use semel::store::{Completion, Stored};
use semel::{Ask, Claim, Clock, Error, Event, Execution, Fingerprint, Key, Outbox, Reply, Scope, Store, SystemClock};
use semel_sqlite::rusqlite::Connection;
use semel_sqlite::{Options, Sqlite, Tx};

/// The machine's clock, moved forward by hand.
#[derive(Debug, Default)]
pub struct MovedClock {
    ahead_ms: AtomicI64,
}

impl MovedClock {
    pub fn advance(&self, by: Duration) {
        self.ahead_ms.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for MovedClock {
    fn now_ms(&self) -> i64 {
        SystemClock.now_ms() + self.ahead_ms.load(Ordering::SeqCst)
    }
}

pub struct File {
    pub directory: tempfile::TempDir,
    pub clock: Arc<MovedClock>,
}

impl File {
    pub async fn create() -> File {
        let file = File { directory: tempfile::tempdir().unwrap(), clock: Arc::default() };
        semel_sqlite::migrate(file.path()).await.unwrap();
        file.connection().execute_batch("CREATE TABLE effects (label TEXT NOT NULL)").unwrap();
        file
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("semel.db")
    }

    /// Options that keep a group together for as long as a test likes.
    pub fn options(&self) -> Options {
        Options { clock: self.clock.clone(), group_age: Duration::from_secs(3600), ..Options::default() }
    }

    pub async fn open(&self) -> Sqlite {
        self.open_with(self.options()).await
    }

    pub async fn open_with(&self, options: Options) -> Sqlite {
        Sqlite::open(self.path(), options).await.unwrap()
    }

    /// A connection of its own, which waits for nobody.
    pub fn connection(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::ZERO).unwrap();
        connection
    }

    pub fn effects(&self, label: &str) -> i64 {
        let sql = "SELECT count(*) FROM effects WHERE label = ?1";
        self.connection().query_row(sql, (label,), |row| row.get(0)).unwrap()
    }

    /// Whether another process could write now.
    pub fn is_write_lock_free(&self) -> bool {
        self.connection().execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok()
    }
}

pub fn scope() -> Scope {
    Scope::new("tenant", "charge").unwrap()
}

pub fn ask(key: &Key) -> Ask {
    Ask::new(&scope(), key, &Fingerprint::of_bytes(b"a request"))
}

pub async fn fresh(store: &Sqlite, key: &Key) -> Tx {
    match store.claim(&ask(key)).await.unwrap() {
        Claim::Fresh(tx) => tx,
        other => panic!("the key is new, not {other:?}"),
    }
}

pub async fn insert(tx: &mut Tx, label: &str) -> Result<(), Error> {
    tx.execute("INSERT INTO effects (label) VALUES (?1)", (label,)).await.map(drop)
}

pub fn completion(execution: Execution) -> Completion {
    Completion {
        stored: Stored { execution, status: 201, headers: "a: b\r\n".into(), body: "body".into(), sealed_by: None },
        keep_effect: true,
        failed: false,
        retain: Duration::from_secs(24 * 60 * 60),
    }
}

pub fn reply() -> Reply {
    Reply::new(201, "body").unwrap()
}

/// An event of a key of its own.
pub fn event(label: &str) -> Event {
    Event::new("topic", label, "test.happened", &label).unwrap()
}

/// The ordering keys of all events, in order.
pub async fn labels(store: &Sqlite) -> Vec<String> {
    all_events(store).await.into_iter().map(|written| written.event.ordering_key).collect()
}

pub async fn all_events(store: &Sqlite) -> Vec<Written> {
    let (mut events, mut after, lanes) = (Vec::new(), Cursor::START, Lane::all().collect::<Vec<_>>());
    while let Some(page) = store.page(after, &lanes, PageLimit { events: 1000, bytes: 1 << 30 }).await.unwrap() {
        assert!(page.upto > after);
        after = page.upto;
        events.extend(page.events);
    }
    events
}
