//! The suite that every store passes that flows run on, on PostgreSQL: under READ COMMITTED, under SERIALIZABLE, and
//! through pgbouncer in transaction mode. What flows make of the store's answers is the same there, so they run on the
//! first alone.
#![allow(clippy::unwrap_used, missing_docs)]

use std::marker::PhantomData;
use std::time::Duration;

use semel::Error;
use semel_postgres::{Isolation, Options, Postgres, Statements, Tx};
use semel_testkit::database::TempDatabase;
use semel_testkit::flows::{Harness, Rows};
use semel_testkit::pgbouncer::Bouncer;

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

    async fn begin(&self) -> Tx {
        self.store.begin().await.unwrap()
    }

    async fn commit(tx: Tx) -> Result<(), Error> {
        tx.commit().await
    }

    async fn count(&self, label: &str) -> u64 {
        self.number("SELECT count(*) FROM effects WHERE label = $1", label).await
    }

    async fn audits(&self, reason: &str) -> u64 {
        self.number("SELECT count(*) FROM semel.audit WHERE reason = $1", reason).await
    }

    async fn rows(&self) -> Rows {
        let sql = "SELECT (SELECT count(*) FROM semel.flows), (SELECT count(*) FROM semel.flow_steps)";
        let row = self.database.connect().await.query_one(sql, &[]).await.unwrap();
        let number = |at: usize| u64::try_from(row.get::<_, i64>(at)).unwrap();
        Rows { flows: number(0), steps: number(1) }
    }

    async fn kept(&self) -> Vec<Vec<u8>> {
        let sql = "SELECT input::bytea FROM semel.flows
                   UNION ALL SELECT unwinding::bytea FROM semel.flows WHERE unwinding IS NOT NULL
                   UNION ALL SELECT result::bytea FROM semel.flow_steps WHERE result IS NOT NULL";
        let rows = self.database.connect().await.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn rewrite(&self, step: &str, result: &[u8]) {
        let sql = "UPDATE semel.flow_steps SET result = $2::bytea, sealed_by = NULL WHERE step = $1::text";
        self.database.connect().await.execute(sql, &[&step, &result]).await.unwrap();
    }

    async fn age(&self, by: Duration) {
        let ages = [
            "UPDATE semel.keys SET created_at = created_at - make_interval(secs => $1),
                    expires_at = expires_at - make_interval(secs => $1),
                    lease_expires_at = lease_expires_at - make_interval(secs => $1)",
            "UPDATE semel.flows SET begun_at = begun_at - make_interval(secs => $1),
                    lives_from = lives_from - make_interval(secs => $1)",
            "UPDATE semel.flow_steps SET recorded_at = recorded_at - make_interval(secs => $1),
                    settled_at = settled_at - make_interval(secs => $1),
                    sent_at = sent_at - make_interval(secs => $1),
                    attempted_at = attempted_at - make_interval(secs => $1)",
        ];
        let client = self.database.connect().await;
        for age in ages {
            client.execute(age, &[&by.as_secs_f64()]).await.unwrap();
        }
    }

    async fn reincarnate(&self) {
        let client = self.database.connect().await;
        client.execute("UPDATE semel.flows SET incarnation = incarnation # 1", &[]).await.unwrap();
        client.execute("UPDATE semel.flow_steps SET resolved_in = resolved_in # 1", &[]).await.unwrap();
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

    semel_testkit::flow_conformance_tests!(OnPostgres<ReadCommitted>);
}

mod serializable {
    use super::*;

    struct Serializable;

    impl Setup for Serializable {
        fn options() -> Options {
            Options { isolation: Isolation::Serializable, ..Options::default() }
        }
    }

    semel_testkit::flow_conformance_tests!(OnPostgres<Serializable>, store);
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

    semel_testkit::flow_conformance_tests!(OnPostgres<Pooled>, store);
}
