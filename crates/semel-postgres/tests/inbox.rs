//! The suite that every inbox passes, on PostgreSQL: directly, under SERIALIZABLE, and through pgbouncer in transaction
//! mode.
#![allow(clippy::unwrap_used, missing_docs)]

use std::marker::PhantomData;
use std::ops::Range;
use std::time::Duration;

use semel::consume::Consumed;
use semel::inbox::{Accepted, JoinInbox, Sequence};
use semel::once::Error as OnceError;
use semel::{Consumer, Delivery, Error, Join, Semel};
use semel_postgres::{Deferred, Isolation, Options, Postgres, Statements, Tx};
use semel_testkit::database::TempDatabase;
use semel_testkit::inbox::{Harness, Joined};
use semel_testkit::pgbouncer::Bouncer;
use tokio_postgres::Transaction;

/// How the store under test reaches its database.
trait Setup: Send + Sync + 'static {
    const POOLED: bool = false;
    const CONFLICTS: bool = false;

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

    const CONFLICTS: bool = S::CONFLICTS;

    async fn create() -> OnPostgres<S> {
        let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
        database.connect().await.batch_execute("CREATE TABLE effects (label text NOT NULL)").await.unwrap();
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

    fn defer(tx: &mut Tx, label: &str, rows: u32) {
        tx.defer(Deferred::expecting(rows, "INSERT INTO effects (label) VALUES ($1)").bind(label.to_owned()));
    }

    async fn refuse(tx: &mut Tx) -> Error {
        tx.execute("INSERT INTO effects (label) VALUES (NULL)", &[]).await.unwrap_err()
    }

    async fn cut(tx: &mut Tx) -> bool {
        tx.query("SELECT pg_terminate_backend(pg_backend_pid())", &[]).await.is_err()
    }

    async fn count(&self, label: &str) -> u64 {
        let client = self.database.connect().await;
        let row = client.query_one("SELECT count(*) FROM effects WHERE label = $1", &[&label]).await.unwrap();
        u64::try_from(row.get::<_, i64>(0)).unwrap()
    }

    async fn ranges(&self, consumer: &Consumer, lane: &Sequence) -> Vec<Range<u64>> {
        let sql = "SELECT lower(r), upper(r)
                   FROM semel.marks m JOIN semel.consumers c ON c.id = m.consumer, unnest(m.applied) r
                   WHERE c.name = $1 AND m.generation = $2 AND m.incarnation = $3 AND m.topic = $4 AND m.lane = $5
                   ORDER BY 1";
        let generation = i32::try_from(consumer.generation()).unwrap();
        let number = i16::try_from(lane.lane).unwrap();
        let name = consumer.name();
        let client = self.database.connect().await;
        let rows = client.query(sql, &[&name, &generation, &lane.incarnation, &lane.topic, &number]).await.unwrap();
        let bound = |row: &tokio_postgres::Row, at| u64::try_from(row.get::<_, i64>(at)).unwrap();
        rows.iter().map(|row| bound(row, 0)..bound(row, 1)).collect()
    }

    async fn age(&self, by: Duration) {
        let ages = [
            "UPDATE semel.inbox SET received_at = received_at - make_interval(secs => $1)",
            "UPDATE semel.dead_letters SET dead_at = dead_at - make_interval(secs => $1),
                    changed_at = changed_at - make_interval(secs => $1)",
        ];
        for age in ages {
            self.database.connect().await.execute(age, &[&by.as_secs_f64()]).await.unwrap();
        }
    }

    async fn audits(&self, reason: &str) -> u64 {
        let client = self.database.connect().await;
        let row = client.query_one("SELECT count(*) FROM semel.audit WHERE reason = $1", &[&reason]).await.unwrap();
        u64::try_from(row.get::<_, i64>(0)).unwrap()
    }

    async fn consume_joined(
        &self,
        semel: &Semel<Postgres>,
        joined: &Joined<'_>,
    ) -> Result<Consumed<()>, OnceError<Error>> {
        let mut client = self.database.connect().await;
        let mut transaction = client.transaction().await.unwrap();
        let effect = async |transaction: &mut Transaction<'_>| {
            let inserted = transaction.execute("INSERT INTO effects (label) VALUES ($1)", &[&joined.label]).await;
            inserted.map_err(|error| Error::Statement(error.into()))?;
            Join::<Postgres>::emit(transaction, std::slice::from_ref(&joined.event)).await
        };
        let consumed = semel.consume_tx(&mut transaction, joined.consumer, joined.delivery, effect).await;
        let keep = joined.commit && consumed.as_ref().is_ok_and(|consumed| *consumed != Consumed::Early);
        end(transaction, keep).await;
        consumed
    }

    async fn accept_joined(
        &self,
        consumer: &Consumer,
        deliveries: &[Delivery],
        commit: bool,
    ) -> Result<Vec<Accepted>, Error> {
        let mut client = self.database.connect().await;
        let mut transaction = client.transaction().await.unwrap();
        let accepted = JoinInbox::<Postgres>::accept(&mut transaction, consumer, deliveries).await;
        end(transaction, commit && accepted.is_ok()).await;
        accepted
    }
}

async fn end(transaction: Transaction<'_>, commit: bool) {
    if commit { transaction.commit().await.unwrap() } else { transaction.rollback().await.unwrap() }
}

mod directly {
    use super::*;

    struct Direct;

    impl Setup for Direct {}

    semel_testkit::inbox_tests!(OnPostgres<Direct>);

    mod runner {
        use super::*;

        semel_testkit::runner_tests!(OnPostgres<Direct>);
    }
}

mod serializable {
    use super::*;

    struct Serializable;

    impl Setup for Serializable {
        const CONFLICTS: bool = true;

        fn options() -> Options {
            Options { isolation: Isolation::Serializable, ..Options::default() }
        }
    }

    semel_testkit::inbox_tests!(OnPostgres<Serializable>);
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

    semel_testkit::inbox_tests!(OnPostgres<Pooled>);
}
