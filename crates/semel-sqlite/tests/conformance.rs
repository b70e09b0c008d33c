//! The suite that every store passes.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use common::File;
use semel::{Error, Key};
use semel_sqlite::{Deferred, Sqlite, Tx};
use semel_testkit::conformance::Harness;

struct OnSqlite {
    file: File,
    store: Sqlite,
}

impl Harness for OnSqlite {
    type Store = Sqlite;

    async fn create() -> OnSqlite {
        let file = File::create().await;
        let store = file.open().await;
        OnSqlite { file, store }
    }

    fn store(&self) -> &Sqlite {
        &self.store
    }

    async fn another(&self) -> Sqlite {
        self.file.open().await
    }

    async fn insert(tx: &mut Tx, label: &str) -> Result<(), Error> {
        common::insert(tx, label).await
    }

    fn defer(tx: &mut Tx, label: &str, rows: u32) {
        let sql = "INSERT INTO effects (label) VALUES (?1)";
        tx.defer(Deferred::expecting(rows.into(), sql).bind(label.to_owned()));
    }

    async fn count(&self, label: &str) -> u64 {
        self.file.effects(label).unsigned_abs()
    }

    async fn audits(&self, reason: &str) -> u64 {
        let sql = "SELECT count(*) FROM semel_audit WHERE reason = ?1";
        let count: i64 = self.file.connection().query_row(sql, (reason,), |row| row.get(0)).unwrap();
        count.unsigned_abs()
    }

    async fn raw_body(&self, key: &Key) -> Vec<u8> {
        let sql = "SELECT body FROM semel_keys WHERE key = ?1";
        self.file.connection().query_row(sql, (key.as_str(),), |row| row.get(0)).unwrap()
    }

    async fn age(&self, by: Duration) {
        self.file.clock.advance(by);
    }
}

semel_testkit::conformance_tests!(OnSqlite);
