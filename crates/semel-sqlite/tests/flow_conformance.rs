//! The suite that every store passes that flows run on.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use common::File;
use semel::Error;
use semel_sqlite::rusqlite::Connection;
use semel_sqlite::{Options, Sqlite, Tx};
use semel_testkit::flows::{Harness, Rows};

struct OnSqlite {
    file: File,
    store: Sqlite,
}

impl OnSqlite {
    /// A connection of the test's own. Other handles' groups may hold the file for a moment.
    fn connection(&self) -> Connection {
        let connection = self.file.connection();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection
    }

    fn number(&self, sql: &str) -> u64 {
        self.connection().query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap().unsigned_abs()
    }
}

impl Harness for OnSqlite {
    type Store = Sqlite;

    async fn create() -> OnSqlite {
        let file = File::create().await;
        let store = file.open_with(Options { clock: file.clock.clone(), ..Options::default() }).await;
        OnSqlite { file, store }
    }

    fn store(&self) -> &Sqlite {
        &self.store
    }

    async fn another(&self) -> Sqlite {
        self.file.open_with(Options { clock: self.file.clock.clone(), ..Options::default() }).await
    }

    async fn insert(tx: &mut Tx, label: &str) -> Result<(), Error> {
        common::insert(tx, label).await
    }

    async fn begin(&self) -> Tx {
        self.store.begin().await.unwrap()
    }

    async fn commit(tx: Tx) -> Result<(), Error> {
        tx.commit().await
    }

    async fn count(&self, label: &str) -> u64 {
        self.file.effects(label).unsigned_abs()
    }

    async fn audits(&self, reason: &str) -> u64 {
        let sql = "SELECT count(*) FROM semel_audit WHERE reason = ?1";
        self.connection().query_row(sql, (reason,), |row| row.get::<_, i64>(0)).unwrap().unsigned_abs()
    }

    async fn rows(&self) -> Rows {
        let flows = self.number("SELECT count(*) FROM semel_flows");
        Rows { flows, steps: self.number("SELECT count(*) FROM semel_flow_steps") }
    }

    async fn kept(&self) -> Vec<Vec<u8>> {
        let sql = "SELECT input FROM semel_flows
                   UNION ALL SELECT unwinding FROM semel_flows WHERE unwinding IS NOT NULL
                   UNION ALL SELECT result FROM semel_flow_steps WHERE result IS NOT NULL";
        let connection = self.connection();
        let mut kept = connection.prepare(sql).unwrap();
        let rows = kept.query_map((), |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    async fn rewrite(&self, step: &str, result: &[u8]) {
        let sql = "UPDATE semel_flow_steps SET result = ?2, sealed_by = NULL WHERE step = ?1";
        self.connection().execute(sql, (step, result)).unwrap();
    }

    async fn age(&self, by: Duration) {
        self.file.clock.advance(by);
    }

    async fn reincarnate(&self) {
        let connection = self.connection();
        connection.execute("UPDATE semel_flows SET incarnation = 'another'", ()).unwrap();
        let resolved = "UPDATE semel_flow_steps SET resolved_in = 'another' WHERE resolved_in IS NOT NULL";
        connection.execute(resolved, ()).unwrap();
    }
}

semel_testkit::flow_conformance_tests!(OnSqlite);
