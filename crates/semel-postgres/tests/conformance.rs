//! The suite that every store passes, on PostgreSQL: under READ COMMITTED, under SERIALIZABLE, and through pgbouncer in
//! transaction mode.
#![allow(clippy::unwrap_used, missing_docs)]

use std::marker::PhantomData;
use std::time::Duration;

use semel::{Error, Key};
use semel_postgres::{Deferred, Isolation, Options, Postgres, Statements, Tx};
use semel_testkit::conformance::Harness;
use semel_testkit::database::TempDatabase;
use semel_testkit::pgbouncer::Bouncer;

/// How the store under test reaches its database.
trait Setup: Send + Sync + 'static {
    const POOLED: bool = false;
    const OLD_SNAPSHOTS: bool = false;

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

    const OLD_SNAPSHOTS: bool = S::OLD_SNAPSHOTS;

    async fn create() -> OnPostgres<S> {
        let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
        let client = database.connect().await;
        client.batch_execute("CREATE TABLE effects (label text NOT NULL)").await.unwrap();
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

    async fn count(&self, label: &str) -> u64 {
        self.number("SELECT count(*) FROM effects WHERE label = $1", label).await
    }

    async fn audits(&self, reason: &str) -> u64 {
        self.number("SELECT count(*) FROM semel.audit WHERE reason = $1", reason).await
    }

    async fn raw_body(&self, key: &Key) -> Vec<u8> {
        let client = self.database.connect().await;
        let row = client.query_one("SELECT body FROM semel.keys WHERE key = $1", &[&key.as_str()]).await.unwrap();
        row.get(0)
    }

    async fn age(&self, by: Duration) {
        let client = self.database.connect().await;
        let age = "UPDATE semel.keys SET created_at = created_at - make_interval(secs => $1),
                   expires_at = expires_at - make_interval(secs => $1),
                   lease_expires_at = lease_expires_at - make_interval(secs => $1)";
        client.execute(age, &[&by.as_secs_f64()]).await.unwrap();
    }
}

impl<S> OnPostgres<S> {
    async fn number(&self, sql: &str, value: &str) -> u64 {
        let row = self.database.connect().await.query_one(sql, &[&value]).await.unwrap();
        u64::try_from(row.get::<_, i64>(0)).unwrap()
    }
}

mod read_committed {
    use super::*;

    struct ReadCommitted;

    impl Setup for ReadCommitted {}

    semel_testkit::conformance_tests!(OnPostgres<ReadCommitted>);
}

mod serializable {
    use super::*;

    struct Serializable;

    impl Setup for Serializable {
        const OLD_SNAPSHOTS: bool = true;

        fn options() -> Options {
            Options { isolation: Isolation::Serializable, ..Options::default() }
        }
    }

    semel_testkit::conformance_tests!(OnPostgres<Serializable>);
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

    semel_testkit::conformance_tests!(OnPostgres<Pooled>);
}
