//! The suite that every inbox passes.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::ops::Range;
use std::time::Duration;

use common::File;
use semel::consume::Consumed;
use semel::inbox::{Accepted, JoinInbox, Sequence};
use semel::once::Error as OnceError;
use semel::{Consumer, Delivery, Error, Join, Semel};
use semel_sqlite::rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use semel_sqlite::{Deferred, Options, Sqlite, Tx};
use semel_testkit::inbox::{Harness, Joined};

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
}

fn immediate(connection: &mut Connection) -> Transaction<'_> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

fn end(transaction: Transaction<'_>, commit: bool) {
    if commit { transaction.commit() } else { transaction.rollback() }.unwrap();
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

    fn defer(tx: &mut Tx, label: &str, rows: u32) {
        let sql = "INSERT INTO effects (label) VALUES (?1)";
        tx.defer(Deferred::expecting(rows.into(), sql).bind(label.to_owned()));
    }

    async fn refuse(tx: &mut Tx) -> Error {
        tx.execute("INSERT INTO effects (label) VALUES (NULL)", ()).await.unwrap_err()
    }

    async fn count(&self, label: &str) -> u64 {
        self.file.effects(label).unsigned_abs()
    }

    async fn ranges(&self, consumer: &Consumer, lane: &Sequence) -> Vec<Range<u64>> {
        let sql = "SELECT applied FROM semel_marks JOIN semel_consumers ON semel_consumers.id = semel_marks.consumer
                   WHERE name = ?1 AND semel_marks.generation = ?2 AND incarnation = ?3 AND topic = ?4 AND lane = ?5";
        let lane = (consumer.name(), consumer.generation(), &lane.incarnation, &lane.topic, lane.lane);
        let applied: Option<String> = self.connection().query_row(sql, lane, |row| row.get(0)).optional().unwrap();
        let number = |text: &str| text.parse::<u64>().unwrap();
        let ranges = applied.iter().flat_map(|applied| applied.split(',')).map(|range| range.split_once('-').unwrap());
        ranges.map(|(first, last)| number(first)..number(last) + 1).collect()
    }

    async fn age(&self, by: Duration) {
        self.file.clock.advance(by);
    }

    async fn audits(&self, reason: &str) -> u64 {
        let sql = "SELECT count(*) FROM semel_audit WHERE reason = ?1";
        self.connection().query_row(sql, (reason,), |row| row.get::<_, i64>(0)).unwrap().unsigned_abs()
    }

    async fn consume_joined(
        &self,
        semel: &Semel<Sqlite>,
        joined: &Joined<'_>,
    ) -> Result<Consumed<()>, OnceError<Error>> {
        let mut connection = self.connection();
        let mut transaction = immediate(&mut connection);
        let effect = async |transaction: &mut Transaction<'_>| {
            transaction.execute("INSERT INTO effects (label) VALUES (?1)", (joined.label,)).unwrap();
            Join::<Sqlite>::emit(transaction, std::slice::from_ref(&joined.event)).await
        };
        let consumed = semel.consume_tx(&mut transaction, joined.consumer, joined.delivery, effect).await;
        let commit = joined.commit && consumed.as_ref().is_ok_and(|consumed| *consumed != Consumed::Early);
        end(transaction, commit);
        consumed
    }

    async fn accept_joined(
        &self,
        consumer: &Consumer,
        deliveries: &[Delivery],
        commit: bool,
    ) -> Result<Vec<Accepted>, Error> {
        let mut connection = self.connection();
        let mut transaction = immediate(&mut connection);
        let accepted = JoinInbox::<Sqlite>::accept(&mut transaction, consumer, deliveries).await;
        end(transaction, commit && accepted.is_ok());
        accepted
    }
}

semel_testkit::inbox_tests!(OnSqlite);

mod runner {
    use super::*;

    semel_testkit::runner_tests!(OnSqlite);
}
