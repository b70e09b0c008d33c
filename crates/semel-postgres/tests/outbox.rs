//! The suite that every outbox passes, on PostgreSQL: directly, and through pgbouncer in transaction mode.
#![allow(clippy::unwrap_used, missing_docs)]

use std::marker::PhantomData;

use semel::outbox::{Cursor, PageLimit};
use semel::sink::Lane;
use semel::{Error, Event, Join, Outbox, Outcome, Reply, Semel};
use semel_postgres::{Options, Postgres, Statements, Tx};
use semel_testkit::database::TempDatabase;
use semel_testkit::outbox::{Harness, Joined};
use semel_testkit::pgbouncer::Bouncer;
use tokio_postgres::{Client, Transaction};

/// How the store under test reaches its database.
trait Setup: Send + Sync + 'static {
    const POOLED: bool = false;

    fn options() -> Options {
        Options::default()
    }
}

struct OnPostgres<S> {
    store: Postgres,
    url: String,
    database: TempDatabase,
    _bouncer: Option<Bouncer>,
    setup: PhantomData<S>,
}

impl<S: Setup> Harness for OnPostgres<S> {
    type Store = Postgres;

    async fn create() -> OnPostgres<S> {
        let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
        let tables = "CREATE TABLE effects (label text NOT NULL);
                      CREATE TABLE counters (name text PRIMARY KEY, value bigint NOT NULL)";
        database.connect().await.batch_execute(tables).await.unwrap();
        let bouncer = S::POOLED.then(|| Bouncer::start(&database.url()).unwrap());
        let url = bouncer.as_ref().map_or_else(|| database.url(), |bouncer| bouncer.url_for(database.name()));
        let store = Postgres::connect(&url, S::options()).await.unwrap();
        OnPostgres { store, url, database, _bouncer: bouncer, setup: PhantomData }
    }

    fn store(&self) -> &Postgres {
        &self.store
    }

    async fn another(&self) -> Postgres {
        Postgres::connect(&self.url, S::options()).await.unwrap()
    }

    async fn insert(tx: &mut Tx, label: &str) -> Result<(), Error> {
        tx.execute("INSERT INTO effects (label) VALUES ($1)", &[&label]).await.map(drop)
    }

    async fn count_up(tx: &mut Tx, name: &str) -> Result<i64, Error> {
        let sql = "INSERT INTO counters AS c VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET value = c.value + 1
                   RETURNING value";
        let row = tx.query_opt(sql, &[&name]).await?;
        row.map(|row| row.get(0)).ok_or_else(|| Error::RowCount("a counter is one row".to_owned()))
    }

    async fn count(&self, label: &str) -> u64 {
        self.number("SELECT count(*) FROM effects WHERE label = $1", label).await
    }

    async fn audits(&self, reason: &str) -> u64 {
        self.number("SELECT count(*) FROM semel.audit WHERE reason = $1", reason).await
    }

    async fn once_joined(&self, semel: &Semel<Postgres>, joined: &Joined<'_>) -> Outcome {
        let mut client = self.database.connect().await;
        let mut transaction = client.transaction().await.unwrap();
        let Joined { scope, key, fingerprint, .. } = joined;
        let work = async |transaction: &mut Transaction<'_>| {
            transaction.execute("INSERT INTO effects (label) VALUES ($1)", &[&key.as_str()]).await?;
            for batch in joined.batches {
                Join::<Postgres>::emit(transaction, batch).await.unwrap();
            }
            Ok::<Reply, tokio_postgres::Error>(Reply::new(joined.status, "done").unwrap())
        };
        let outcome = semel.once_tx(&mut transaction, scope, key, fingerprint, work).await.unwrap();
        end(transaction, joined.commit).await;
        outcome
    }

    async fn emit_joined(&self, batches: &[Vec<Event>], commit: bool) -> Result<(), Error> {
        let mut client = self.database.connect().await;
        let mut transaction = client.transaction().await.unwrap();
        for batch in batches {
            Join::<Postgres>::emit(&mut transaction, batch).await?;
        }
        end(transaction, commit).await;
        Ok(())
    }

    async fn reincarnate(&self) {
        let another = "UPDATE semel.outbox SET incarnation = 'another' WHERE incarnation IS NOT NULL;
                       UPDATE semel.incarnations SET name = 'another', hash = semel.incarnation_hash('another');
                       UPDATE semel.events SET incarnation = semel.incarnation_hash('another');
                       UPDATE semel.ticks SET incarnation = semel.incarnation_hash('another');
                       UPDATE semel.positions SET incarnation = semel.incarnation_hash('another')";
        self.database.connect().await.batch_execute(another).await.unwrap();
    }
}

impl<S> OnPostgres<S> {
    async fn number(&self, sql: &str, value: &str) -> u64 {
        let row = self.database.connect().await.query_one(sql, &[&value]).await.unwrap();
        u64::try_from(row.get::<_, i64>(0)).unwrap()
    }
}

async fn end(transaction: Transaction<'_>, commit: bool) {
    if commit { transaction.commit().await.unwrap() } else { transaction.rollback().await.unwrap() }
}

struct Direct;

impl Setup for Direct {}

mod directly {
    use super::*;

    semel_testkit::outbox_tests!(OnPostgres<Direct>);
}

mod through_pgbouncer {
    use super::*;

    struct Pooled;

    impl Setup for Pooled {
        const POOLED: bool = true;

        fn options() -> Options {
            Options { statements: Statements::Unnamed, ..Options::default() }
        }
    }

    semel_testkit::outbox_tests!(OnPostgres<Pooled>);
}

/// I4, and the control for it: of two transactions, the one that drew its seq first commits last. Whoever follows the
/// seq alone has gone past it by then and never sees it; pages bring it. A savepoint changes nothing.
#[tokio::test]
async fn what_commits_late_comes_late_and_a_reader_that_follows_the_seq_loses_it() {
    let harness = OnPostgres::<Direct>::create().await;
    let (mut one, mut two) = (harness.database.connect().await, harness.database.connect().await);
    let naive = harness.database.connect().await;
    let event = |key: &str| [Event::new("topic", key, "test.happened", &key).unwrap()];

    let mut early = one.transaction().await.unwrap();
    let mut within = early.savepoint("within").await.unwrap();
    Join::<Postgres>::emit(&mut within, &event("early")).await.unwrap();
    within.commit().await.unwrap();
    let mut late = two.transaction().await.unwrap();
    Join::<Postgres>::emit(&mut late, &event("late")).await.unwrap();
    late.commit().await.unwrap();
    let (mut last, mut after) = (0, Cursor::START);
    assert_eq!(by_seq(&naive, &mut last).await, ["late"]);
    assert_eq!(by_page(harness.store(), &mut after).await, ["late"], "a writer that is held open holds up nobody");

    early.commit().await.unwrap();
    assert_eq!(by_seq(&naive, &mut last).await, Vec::<String>::new(), "the naive reader has lost an event");
    assert_eq!(by_page(harness.store(), &mut after).await, ["early"]);
    assert_eq!(by_page(harness.store(), &mut Cursor::START.clone()).await, ["late", "early"], "and it stays so");
}

async fn by_seq(client: &Client, last: &mut i64) -> Vec<String> {
    let sql = "SELECT seq, ordering_key::text FROM semel.events WHERE seq > $1 ORDER BY seq";
    let rows = client.query(sql, &[last]).await.unwrap();
    *last = rows.last().map_or(*last, |row| row.get(0));
    rows.iter().map(|row| row.get(1)).collect()
}

async fn by_page(outbox: &Postgres, after: &mut Cursor) -> Vec<String> {
    let (mut keys, lanes) = (Vec::new(), Lane::all().collect::<Vec<_>>());
    while let Some(page) = outbox.page(*after, &lanes, PageLimit { events: 10, bytes: 1 << 20 }).await.unwrap() {
        *after = page.upto;
        keys.extend(page.events.into_iter().map(|written| written.event.ordering_key));
    }
    keys
}
