//! The suite that every store passes, on PostgreSQL.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use semel::{Error, Key};
use semel_postgres::{Deferred, Options, Postgres, Tx};
use semel_testkit::conformance::Harness;
use semel_testkit::database::TempDatabase;

struct OnPostgres {
    store: Postgres,
    database: TempDatabase,
}

impl Harness for OnPostgres {
    type Store = Postgres;

    async fn create() -> OnPostgres {
        let database = TempDatabase::create().await;
        let store = Postgres::open(&database.url(), Options::default()).unwrap();
        store.migrate().await.unwrap();
        let client = database.connect().await;
        client.batch_execute("CREATE TABLE effects (label text NOT NULL)").await.unwrap();
        OnPostgres { store, database }
    }

    fn store(&self) -> &Postgres {
        &self.store
    }

    async fn another(&self) -> Postgres {
        Postgres::connect(&self.database.url(), Options::default()).await.unwrap()
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

impl OnPostgres {
    async fn number(&self, sql: &str, value: &str) -> u64 {
        let row = self.database.connect().await.query_one(sql, &[&value]).await.unwrap();
        u64::try_from(row.get::<_, i64>(0)).unwrap()
    }
}

semel_testkit::conformance_tests!(OnPostgres);
