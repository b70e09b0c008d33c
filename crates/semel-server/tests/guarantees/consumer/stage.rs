//! A producer's database, a broker, a consumer's database, and what went in on one side and must come out on the other
//! once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::letter::{LetterFilter, LetterRecord};
use semel::source::Recognition;
use semel::{Error, Event, Fingerprint, Inbox, Key, Reply, Scope, Semel, Tx};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::poll::{until, until_none_left};
use serde_json::{Value, json};

use super::broker::Broker;
use super::process::Plan;
use crate::relay::process::Plan as RelayPlan;
use crate::relay::stage::Counting;

/// After how long a broker that cannot tell whether a consumer is dead gives its messages to another.
pub(crate) const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a consumer did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) generation: u32,
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) n: u64,
}

/// A store that consumers can be tried on.
pub(crate) trait Applying: Counting + Inbox {
    /// Opens a database of a test by its URL, in a process of its own.
    fn open_url(url: &str, deadline: Duration) -> impl Future<Output = Self> + Send;

    /// Creates the table `effects`.
    fn prepare(&self) -> impl Future<Output = ()> + Send;

    /// Writes an effect inside the transaction.
    fn apply(tx: &mut Self::Tx, effect: &Effect) -> impl Future<Output = Result<(), Error>> + Send;

    /// Commits an effect in a transaction that knows of no inbox.
    fn apply_plainly(&self, effect: &Effect) -> impl Future<Output = Result<(), Error>> + Send;

    /// Every committed effect, in the order in which they were written.
    fn effects(&self) -> impl Future<Output = Vec<Effect>> + Send;
}

const COLUMNS: &str = "generation, id, ordering_key, n";

impl Applying for Postgres {
    async fn open_url(url: &str, deadline: Duration) -> Postgres {
        Postgres::open(url, semel_postgres::Options { deadline, ..Default::default() }).unwrap()
    }

    async fn prepare(&self) {
        let table = "CREATE TABLE effects (place BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
                     generation INT NOT NULL, id TEXT NOT NULL, ordering_key TEXT NOT NULL, n BIGINT NOT NULL)";
        self.client().await.unwrap().batch_execute(table).await.unwrap();
    }

    async fn apply(tx: &mut semel_postgres::Tx, effect: &Effect) -> Result<(), Error> {
        let insert = format!("INSERT INTO effects ({COLUMNS}) VALUES ($1, $2, $3, $4)");
        let (generation, n) = (effect.generation.cast_signed(), effect.n.cast_signed());
        tx.execute(&insert, &[&generation, &effect.id, &effect.key, &n]).await.map(drop)
    }

    async fn apply_plainly(&self, effect: &Effect) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        Postgres::apply(&mut tx, effect).await?;
        tx.commit().await
    }

    async fn effects(&self) -> Vec<Effect> {
        let select = format!("SELECT {COLUMNS} FROM effects ORDER BY place");
        let rows = self.client().await.unwrap().query(&select, &[]).await.unwrap();
        let effects = rows.iter().map(|row| Effect {
            generation: row.get::<_, i32>(0).cast_unsigned(),
            id: row.get(1),
            key: row.get(2),
            n: row.get::<_, i64>(3).cast_unsigned(),
        });
        effects.collect()
    }
}

impl Applying for Sqlite {
    async fn open_url(url: &str, deadline: Duration) -> Sqlite {
        let path = url.strip_prefix("sqlite:").unwrap();
        Sqlite::open(path, semel_sqlite::Options { deadline, ..Default::default() }).await.unwrap()
    }

    async fn prepare(&self) {
        let table = "CREATE TABLE effects (place INTEGER PRIMARY KEY AUTOINCREMENT, generation INT NOT NULL, \
                     id TEXT NOT NULL, ordering_key TEXT NOT NULL, n INT NOT NULL)";
        let mut tx = self.begin().await.unwrap();
        tx.execute(table, ()).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn apply(tx: &mut semel_sqlite::Tx, effect: &Effect) -> Result<(), Error> {
        let insert = format!("INSERT INTO effects ({COLUMNS}) VALUES (?1, ?2, ?3, ?4)");
        let values = (effect.generation, effect.id.clone(), effect.key.clone(), effect.n.cast_signed());
        tx.execute(&insert, values).await.map(drop)
    }

    async fn apply_plainly(&self, effect: &Effect) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        Sqlite::apply(&mut tx, effect).await?;
        tx.commit().await
    }

    async fn effects(&self) -> Vec<Effect> {
        let select = format!("SELECT {COLUMNS} FROM effects ORDER BY place");
        let effects = self.read(|connection| {
            let mut statement = connection.prepare(&select)?;
            let rows = statement.query_map((), |row| {
                let n: i64 = row.get(3)?;
                Ok(Effect { generation: row.get(0)?, id: row.get(1)?, key: row.get(2)?, n: n.cast_unsigned() })
            })?;
            rows.collect()
        });
        effects.await.unwrap()
    }
}

/// Per ordering key, how many events were committed: they carry the numbers from one to this.
pub(crate) type Committed = BTreeMap<String, u64>;

/// Where a test plays.
pub(crate) struct Stage<S: Applying> {
    /// The consumer's database.
    pub(crate) store: S,
    pub(crate) url: String,
    pub(crate) home: S::Home,
    pub(crate) producer: Producer<S>,
    pub(crate) producer_url: String,
    pub(crate) broker: Broker,
    /// The name of the consumer: nobody else's on a server that tests share.
    pub(crate) name: String,
    _producer_home: S::Home,
    installation: String,
}

impl<S: Applying> Stage<S> {
    /// Two databases on either side of this broker.
    pub(crate) async fn set(broker: Broker) -> Stage<S> {
        let (home, url, store) = S::create().await;
        let (producer_home, producer_url, outbox) = S::create().await;
        store.prepare().await;
        outbox.prepare().await;
        let producer = Producer::new(outbox, &broker.topics);
        let installation = uuid::Uuid::new_v4().to_string();
        let name = format!("effects-{}", uuid::Uuid::new_v4().simple());
        Stage { store, url, home, producer, producer_url, broker, name, _producer_home: producer_home, installation }
    }

    /// How a relay to the broker works.
    pub(crate) fn relay(&self) -> RelayPlan {
        let mut plan = RelayPlan::new(&self.producer_url, &self.broker.sink_url, &self.installation);
        // Nobody is to lose a lease on a busy machine.
        plan.lease_ms = 60_000;
        plan
    }

    /// How a consumer of the broker works.
    pub(crate) fn consumer(&self, by: Recognition) -> Plan {
        Plan::new(&self.url, &self.broker.source_url(AGAIN_AFTER), &self.name, by)
    }

    /// Waits until the relay has got rid of everything that was committed.
    pub(crate) async fn published(&self) {
        until_none_left("everything is published", async || {
            let backlog = self.producer.store().backlog().await.unwrap();
            (backlog.events + backlog.retrying_keys + backlog.parked_keys) as usize
        })
        .await;
    }

    /// Waits until nothing of what was committed is missing, and panics if anything was applied twice.
    pub(crate) async fn applied(&self, when: &str) -> Vec<Effect> {
        let committed = self.producer.committed();
        until_none_left(&format!("{when}: everything is applied"), async || {
            lost(&committed, &self.store.effects().await).len()
        })
        .await;
        let effects = self.store.effects().await;
        exactly(&committed, &effects).unwrap_or_else(|wrong| panic!("{when}: {wrong}"));
        if self.broker.keeps_order {
            in_order(&effects).unwrap_or_else(|wrong| panic!("{when}: {wrong}"));
        }
        effects
    }

    /// Has a further event of every key applied, behind whatever else might still come.
    pub(crate) async fn all_behind(&self) {
        let keys: Vec<(String, Value)> = self.producer.committed().into_keys().map(|key| (key, json!({}))).collect();
        self.producer.emit(&keys).await;
        let committed = self.producer.committed();
        until("the last event of every key is applied", async || {
            let effects = self.store.effects().await;
            committed.iter().all(|(key, n)| effects.iter().any(|effect| (&effect.key, &effect.n) == (key, n)))
        })
        .await;
    }

    pub(crate) async fn letters(&self) -> Vec<LetterRecord> {
        self.store.letters(&LetterFilter::default(), 100).await.unwrap()
    }
}

/// Says what is wrong, if anything is: a committed event that was lost, or was applied more than once (I6), or an
/// effect of an event that nobody committed.
pub(crate) fn exactly(committed: &Committed, effects: &[Effect]) -> Result<(), String> {
    let mut counted: BTreeMap<(&str, u64), u32> = BTreeMap::new();
    for effect in effects {
        *counted.entry((&effect.key, effect.n)).or_default() += 1;
    }
    let lost = lost(committed, effects);
    if !lost.is_empty() {
        return Err(format!("{} lost: {lost:?}", lost.len()));
    }
    let doubled: Vec<_> = counted.iter().filter(|(_, times)| **times > 1).collect();
    if !doubled.is_empty() {
        return Err(format!("{} doubled: {doubled:?}", doubled.len()));
    }
    match counted.keys().find(|(key, n)| committed.get(*key).is_none_or(|last| n > last)) {
        Some((key, n)) => Err(format!("nobody committed number {n} of {key}")),
        None => Ok(()),
    }
}

/// The committed events that have no effect.
pub(crate) fn lost<'a>(committed: &'a Committed, effects: &[Effect]) -> Vec<(&'a str, u64)> {
    let applied: BTreeSet<(&str, u64)> = effects.iter().map(|effect| (effect.key.as_str(), effect.n)).collect();
    let expected = committed.iter().flat_map(|(key, last)| (1..=*last).map(move |n| (key.as_str(), n)));
    expected.filter(|event| !applied.contains(event)).collect()
}

/// Says which key's effects are not in the order of its events, if one is not.
fn in_order(effects: &[Effect]) -> Result<(), String> {
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for effect in effects {
        let before = last.insert(&effect.key, effect.n).unwrap_or(0);
        if effect.n <= before {
            return Err(format!("{} was applied behind {before} of {}", effect.n, effect.key));
        }
    }
    Ok(())
}

/// Commits events, and remembers which.
#[derive(Clone)]
pub(crate) struct Producer<S: Applying> {
    semel: Semel<S>,
    topics: [String; 2],
    committed: Arc<Mutex<Committed>>,
}

impl<S: Applying> Producer<S> {
    fn new(store: S, topics: &[String; 2]) -> Producer<S> {
        Producer { semel: Semel::new(store), topics: topics.clone(), committed: Arc::default() }
    }

    pub(crate) fn store(&self) -> &S {
        self.semel.store()
    }

    /// What was committed so far.
    pub(crate) fn committed(&self) -> Committed {
        self.committed.lock().unwrap().clone()
    }

    /// Counts each of these keys up and emits what it counts, with what else the payload says, in one transaction.
    pub(crate) async fn emit(&self, events: &[(String, Value)]) {
        let scope = Scope::new("tenant", "count").unwrap();
        let counted = Arc::new(Mutex::new(Vec::new()));
        let (noted, all, topics) = (Arc::clone(&counted), events.to_vec(), self.topics.clone());
        let work = async move |tx: &mut S::Tx| {
            let mut counted = Vec::new();
            for (key, more) in &all {
                let n = S::count_up(tx, key).await?;
                let mut payload = more.clone();
                payload["n"] = n.into();
                let topic = &topics[key.len() % 2];
                tx.emit(Event::new(topic, key, "test.counted", &payload).unwrap());
                counted.push((key.clone(), n));
            }
            *noted.lock().unwrap() = counted;
            Ok::<Reply, Error>(Reply::new(201, "counted").unwrap())
        };
        let outcome = self.semel.once(&scope, &Key::random(), &Fingerprint::of_bytes(b"count"), work).await;
        assert_eq!(outcome.unwrap().reply().status(), 201);
        let mut committed = self.committed.lock().unwrap();
        for (key, n) in counted.lock().unwrap().drain(..) {
            let last = committed.entry(key).or_default();
            *last = n.max(*last);
        }
    }
}
