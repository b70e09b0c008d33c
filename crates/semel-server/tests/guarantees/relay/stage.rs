//! A database, a broker, and what was committed to the one and must arrive at the other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::event::{EventId, MAX_PAYLOAD_BYTES};
use semel::outbox::RelayRecord;
use semel::sink::Lane;
use semel::{Error, Event, Fingerprint, Key, Outbox, Reply, Scope, Semel, Store, Tx};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_sqlite::rusqlite::Connection;
use semel_testkit::collector::{Arrival, Collector, Committed, Tally, check, check_dense};
use semel_testkit::database::{TempDatabase, TempFile, sqlite_path};
use semel_testkit::poll::{until, until_none_left};
use serde_json::json;

use super::process::Plan;

const COUNTERS: &str = "CREATE TABLE counters (key TEXT PRIMARY KEY, n BIGINT NOT NULL)";

/// A store that relays can be tried on.
pub(crate) trait Counting: Outbox {
    /// What keeps its database.
    type Home: Send + Sync + 'static;

    /// Whether storage has parts that are switched and emptied.
    const ROTATES: bool;

    /// A fresh, migrated database with a table `counters`.
    fn create() -> impl Future<Output = (Self::Home, String, Self)> + Send;

    /// Whether others can write while a process stands still: a file may be locked by it for good.
    fn is_free(home: &Self::Home) -> bool;

    /// Adds one to the row of `counters` with this name, inside the transaction, and returns what it counts then.
    fn count_up(tx: &mut Self::Tx, key: &str) -> impl Future<Output = Result<u64, Error>> + Send;
}

impl Counting for Postgres {
    type Home = TempDatabase;
    const ROTATES: bool = true;

    async fn create() -> (TempDatabase, String, Postgres) {
        let home = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
        let store = Postgres::open(&home.url(), semel_postgres::Options::default()).unwrap();
        store.client().await.unwrap().batch_execute(COUNTERS).await.unwrap();
        let url = home.url();
        (home, url, store)
    }

    fn is_free(_: &TempDatabase) -> bool {
        true
    }

    async fn count_up(tx: &mut semel_postgres::Tx, key: &str) -> Result<u64, Error> {
        let count = "INSERT INTO counters AS c VALUES ($1, 1) ON CONFLICT (key) DO UPDATE SET n = c.n + 1 RETURNING n";
        let row = tx.query_one(count, &[&key]).await?;
        Ok(row.get::<_, i64>(0).cast_unsigned())
    }
}

impl Counting for Sqlite {
    type Home = TempFile;
    // What is old goes in one commit a batch: there is no moment in between.
    const ROTATES: bool = false;

    async fn create() -> (TempFile, String, Sqlite) {
        let home = sqlite_path();
        let store = Sqlite::open(home.path(), semel_sqlite::Options::default()).await.unwrap();
        store.migrate().await.unwrap();
        let mut tx = store.begin().await.unwrap();
        tx.execute(COUNTERS, ()).await.unwrap();
        tx.commit().await.unwrap();
        let url = home.url();
        (home, url, store)
    }

    fn is_free(home: &TempFile) -> bool {
        let connection = Connection::open(home.path()).unwrap();
        connection.busy_timeout(Duration::from_millis(200)).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok()
    }

    async fn count_up(tx: &mut semel_sqlite::Tx, key: &str) -> Result<u64, Error> {
        let count = "INSERT INTO counters VALUES (?1, 1) ON CONFLICT (key) DO UPDATE SET n = n + 1 RETURNING n";
        let n: i64 = tx.query_row(count, (key.to_owned(),), |row| row.get(0)).await?;
        Ok(n.cast_unsigned())
    }
}

/// Where a test plays.
pub(crate) struct Stage<S: Counting> {
    pub(crate) store: S,
    pub(crate) url: String,
    pub(crate) collector: Arc<Collector>,
    pub(crate) writer: Writer<S>,
    pub(crate) home: S::Home,
    installation: String,
}

/// Commits events, and remembers which.
#[derive(Clone)]
pub(crate) struct Writer<S: Store> {
    semel: Semel<S>,
    scope: Scope,
    topics: [String; 2],
    pub(crate) committed: Arc<Mutex<Committed>>,
}

impl<S: Counting> Stage<S> {
    /// A stage with a database of its own before this broker.
    pub(crate) async fn set(collector: Collector) -> Stage<S> {
        let (home, url, store) = S::create().await;
        let writer = Writer::new(store.clone(), &collector);
        let installation = uuid::Uuid::new_v4().to_string();
        Stage { store, url, collector: Arc::new(collector), writer, home, installation }
    }

    /// How a relay from here to there works, in haste.
    pub(crate) fn plan(&self) -> Plan {
        Plan::new(&self.url, &self.collector.sink_url(), &self.installation)
    }

    /// Waits until everything that was committed is published, as far as the positions say.
    pub(crate) async fn drained(&self) {
        until_none_left("everything is published", async || {
            let backlog = self.store.backlog().await.unwrap();
            (backlog.events + backlog.retrying_keys) as usize
        })
        .await;
    }

    /// What arrived, once everything is published, held against what was committed.
    pub(crate) async fn checked(&self, when: &str) -> Tally {
        self.drained().await;
        let (committed, arrived) = (self.writer.committed(), self.collector.arrived().await);
        let tally = check(&committed, &arrived).unwrap_or_else(|wrong| panic!("{when}: {wrong}"));
        check_dense(&arrived).unwrap_or_else(|wrong| panic!("{when}: {wrong}"));
        tally
    }

    pub(crate) async fn relays(&self) -> Vec<RelayRecord> {
        self.store.outbox_status().await.unwrap().relays
    }

    /// Waits until the relays that there are have these numbers of lanes, the oldest relay first.
    pub(crate) async fn divided(&self, lanes: &[u64]) {
        until(&format!("the relays have {lanes:?} lanes"), async || {
            let mut relays = self.relays().await;
            relays.sort_by_key(|relay| relay.id);
            relays.iter().map(|relay| relay.lanes).eq(lanes.iter().copied())
        })
        .await;
    }
}

impl<S: Counting> Writer<S> {
    /// A writer of events for this broker.
    pub(crate) fn new(store: S, collector: &Collector) -> Writer<S> {
        let scope = Scope::new("tenant", "count").unwrap();
        Writer { semel: Semel::new(store), scope, topics: collector.topics().clone(), committed: Arc::default() }
    }

    /// Where events of this key go.
    pub(crate) fn topic(&self, key: &str) -> &str {
        &self.topics[usize::from(Lane::of(key).0 % 2)]
    }

    pub(crate) fn event(&self, key: &str, n: u64) -> Event {
        Event::new(self.topic(key), key, "test.counted", &json!({ "n": n })).unwrap()
    }

    /// An event with the largest payload there is, which many brokers refuse.
    fn large_event(&self, key: &str, n: u64) -> Event {
        let padding = "x".repeat(MAX_PAYLOAD_BYTES - 100);
        Event::new(self.topic(key), key, "test.counted", &json!({ "n": n, "padding": padding })).unwrap()
    }

    /// What was committed so far.
    pub(crate) fn committed(&self) -> Committed {
        self.committed.lock().unwrap().clone()
    }

    /// Notes that the event number `n` of a key was committed.
    pub(crate) fn note(&self, key: &str, n: u64) {
        let mut committed = self.committed.lock().unwrap();
        let count = committed.entry(key.to_owned()).or_default();
        *count = n.max(*count);
    }

    /// Counts each of these keys up and emits what it counts, in one transaction; rolls it back if `refuse`.
    pub(crate) async fn write(&self, keys: &[String], refuse: bool) -> Vec<EventId> {
        self.write_events(keys, refuse, Writer::event).await
    }

    /// Commits the largest event of this key that there can be.
    pub(crate) async fn write_large(&self, key: &str) -> EventId {
        self.write_events(&[key.to_owned()], false, Writer::large_event).await[0]
    }

    async fn write_events(
        &self,
        keys: &[String],
        refuse: bool,
        event: fn(&Writer<S>, &str, u64) -> Event,
    ) -> Vec<EventId> {
        let written = Arc::new(Mutex::new((Vec::new(), None)));
        let (this, noted, all) = (self.clone(), Arc::clone(&written), keys.to_vec());
        let work = async move |tx: &mut S::Tx| {
            let mut counted = Vec::new();
            for key in &all {
                let n = S::count_up(tx, key).await?;
                tx.emit(event(&this, key, n));
                counted.push((key.clone(), n));
            }
            *noted.lock().unwrap() = (counted, Some(tx.execution()));
            Ok::<Reply, Error>(Reply::new(if refuse { 402 } else { 201 }, "counted").unwrap())
        };
        let outcome = self.semel.once(&self.scope, &Key::random(), &Fingerprint::of_bytes(b"count"), work).await;
        match outcome {
            Ok(outcome) => assert_eq!(outcome.reply().status(), if refuse { 402 } else { 201 }),
            Err(error) => panic!("a business transaction failed: {error:?}"),
        }
        let (counted, execution) = std::mem::take(&mut *written.lock().unwrap());
        if refuse {
            return Vec::new();
        }
        counted.iter().for_each(|(key, n)| self.note(key, *n));
        (0..).zip(&counted).map(|(ordinal, _)| EventId::derive(execution.unwrap(), ordinal)).collect()
    }
}

/// The first arrival of each event.
pub(crate) fn first_occurrences(arrived: &[Arrival]) -> Vec<Arrival> {
    let mut seen = std::collections::HashSet::new();
    arrived.iter().filter(|arrival| seen.insert(&arrival.id)).cloned().collect()
}
