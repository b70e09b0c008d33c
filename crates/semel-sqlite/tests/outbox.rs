//! The suite that every outbox passes.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::File;
use semel::{Error, Event, Join, Outcome, Reply, Semel};
use semel_sqlite::rusqlite::{self, Connection, Transaction, TransactionBehavior};
use semel_sqlite::{Sqlite, Tx};
use semel_testkit::outbox::{Harness, Joined};

struct OnSqlite {
    file: File,
    store: Sqlite,
}

impl OnSqlite {
    /// A connection of the test's own. Other tests' groups may hold the file for a moment.
    fn connection(&self) -> Connection {
        let connection = self.file.connection();
        connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        connection
    }
}

fn immediate(connection: &mut Connection) -> Transaction<'_> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

impl Harness for OnSqlite {
    type Store = Sqlite;

    async fn create() -> OnSqlite {
        let file = File::create().await;
        let counters = "CREATE TABLE counters (name TEXT NOT NULL PRIMARY KEY, count INTEGER NOT NULL)";
        file.connection().execute_batch(counters).unwrap();
        let store = file.open_with(semel_sqlite::Options { clock: file.clock.clone(), ..Default::default() }).await;
        OnSqlite { file, store }
    }

    fn store(&self) -> &Sqlite {
        &self.store
    }

    async fn another(&self) -> Sqlite {
        self.file.open_with(semel_sqlite::Options { clock: self.file.clock.clone(), ..Default::default() }).await
    }

    async fn insert(tx: &mut Tx, label: &str) -> Result<(), Error> {
        common::insert(tx, label).await
    }

    async fn count_up(tx: &mut Tx, name: &str) -> Result<i64, Error> {
        let sql = "INSERT INTO counters (name, count) VALUES (?1, 1)
                   ON CONFLICT (name) DO UPDATE SET count = count + 1 RETURNING count";
        tx.query_row(sql, (name,), |row| row.get(0)).await
    }

    async fn count(&self, label: &str) -> u64 {
        self.file.effects(label).unsigned_abs()
    }

    async fn audits(&self, reason: &str) -> u64 {
        let sql = "SELECT count(*) FROM semel_audit WHERE reason = ?1";
        let count: i64 = self.connection().query_row(sql, (reason,), |row| row.get(0)).unwrap();
        count.unsigned_abs()
    }

    async fn once_joined(&self, semel: &Semel<Sqlite>, joined: &Joined<'_>) -> Outcome {
        let mut connection = self.connection();
        let mut transaction = immediate(&mut connection);
        let outcome = semel
            .once_tx(&mut transaction, joined.scope, joined.key, joined.fingerprint, async |transaction| {
                let label = (joined.key.as_str(),);
                transaction.execute("INSERT INTO effects (label) VALUES (?1)", label).unwrap();
                for batch in joined.batches {
                    transaction.emit(batch).await?;
                }
                Ok::<Reply, Error>(Reply::new(joined.status, "done").unwrap())
            })
            .await
            .unwrap();
        end(transaction, joined.commit).unwrap();
        outcome
    }

    async fn emit_joined(&self, batches: &[Vec<Event>], commit: bool) -> Result<(), Error> {
        let mut connection = self.connection();
        let mut transaction = immediate(&mut connection);
        for batch in batches {
            Join::<Sqlite>::emit(&mut transaction, batch).await?;
        }
        end(transaction, commit).unwrap();
        Ok(())
    }

    async fn reincarnate(&self) {
        let sql = "UPDATE semel_outbox SET incarnation = lower(hex(randomblob(16))),
                          began_after = (SELECT coalesce(max(seq), 0) FROM semel_events)";
        self.connection().execute(sql, ()).unwrap();
    }
}

fn end(transaction: Transaction<'_>, commit: bool) -> rusqlite::Result<()> {
    if commit { transaction.commit() } else { transaction.rollback() }
}

semel_testkit::outbox_tests!(OnSqlite);
