//! Events commit with their effect, in groups, and nobody hears of them before.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{File, completion, event, fresh, insert, labels};
use futures_util::poll;
use semel::{Error, Event, Join, Key, Outbox, Tx as _};
use semel_sqlite::rusqlite::{Connection, Transaction, TransactionBehavior};
use semel_sqlite::{Options, Sqlite};

#[tokio::test]
async fn a_member_of_a_group_that_fails_leaves_no_event_and_the_others_keep_theirs() {
    let file = File::create().await;
    let store = file.open().await;
    let (mut first, mut second, mut third) =
        (fresh(&store, &Key::random()).await, fresh(&store, &Key::random()).await, fresh(&store, &Key::random()).await);
    let done = [first.execution(), second.execution(), third.execution()].map(completion);
    insert(&mut first, "first").await.unwrap();
    first.emit(event("first"));
    // Its first event is written before the database refuses its second.
    second.emit(event("second"));
    second.emit(Event { payload: Bytes::from(vec![0; semel::event::MAX_PAYLOAD_BYTES + 1]), ..event("second") });
    third.emit(event("third"));
    let mut failing = Box::pin(second.complete(&done[1]));
    let mut completing = Box::pin(first.complete(&done[0]));
    assert!(poll!(&mut failing).is_pending(), "the first has the turn");
    let mut following = Box::pin(third.complete(&done[2]));
    assert!(poll!(&mut following).is_pending());
    assert!(poll!(&mut completing).is_pending());
    let (failed, completed, followed) = tokio::join!(failing, completing, following);
    assert!(matches!(failed, Err(Error::Statement(_))), "{failed:?}");
    completed.unwrap();
    followed.unwrap();
    assert_eq!(store.commits(), 1);
    assert_eq!(labels(&store).await, ["first", "third"]);
}

#[tokio::test]
async fn a_completion_past_the_deadline_emits_nothing() {
    let file = File::create().await;
    let deadline = Duration::from_secs(1);
    let store = file.open_with(Options { deadline, ..file.options() }).await;
    let mut late = fresh(&store, &Key::random()).await;
    insert(&mut late, "late").await.unwrap();
    late.emit(event("late"));
    // The same thread that should answer is held up, as if the process had been stopped.
    let held_up = Instant::now();
    while held_up.elapsed() < deadline + Duration::from_millis(50) {
        std::hint::spin_loop();
    }
    let done = completion(late.execution());
    assert!(matches!(late.complete(&done).await, Err(Error::Deadline)));
    assert_eq!(labels(&store).await, [""; 0]);
}

#[tokio::test]
async fn nobody_hears_of_an_event_before_its_groups_commit() {
    let file = File::create().await;
    let store = file.open().await;
    let (mut first, mut second) = (fresh(&store, &Key::random()).await, fresh(&store, &Key::random()).await);
    let done = [first.execution(), second.execution()].map(completion);
    insert(&mut first, "first").await.unwrap();
    first.emit(event("first"));
    let mut waiting = Box::pin(insert(&mut second, "second"));
    assert!(poll!(&mut waiting).is_pending());
    let mut completing = Box::pin(first.complete(&done[0]));
    assert!(poll!(&mut completing).is_pending());
    waiting.await.unwrap();
    // The first has written its event, and the second works in the same group.
    let clone = store.clone();
    let (mut hearing, mut hearing_too) = (Box::pin(store.emitted()), Box::pin(clone.emitted()));
    assert!(poll!(&mut hearing).is_pending() && poll!(&mut hearing_too).is_pending());
    assert_eq!(labels(&store).await, [""; 0]);
    let (one, two) = tokio::join!(completing, second.complete(&done[1]));
    one.unwrap();
    two.unwrap();
    tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(hearing, hearing_too) }).await.unwrap();
    assert_eq!(labels(&store).await, ["first"]);
    assert!(poll!(Box::pin(store.emitted())).is_pending(), "nothing was committed since");
}

#[tokio::test]
async fn a_group_that_does_not_commit_wakes_nobody() {
    let file = File::create().await;
    let tables = "CREATE TABLE parents (id INTEGER PRIMARY KEY);
                  CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)";
    file.connection().execute_batch(tables).unwrap();
    let store = file.open().await;
    let mut tx = fresh(&store, &Key::random()).await;
    tx.execute("INSERT INTO children VALUES (7)", ()).await.unwrap();
    tx.emit(event("orphan"));
    let done = completion(tx.execution());
    assert!(matches!(tx.complete(&done).await, Err(Error::Statement(_))));
    assert_eq!(labels(&store).await, [""; 0]);
    assert!(poll!(Box::pin(store.emitted())).is_pending());
    // Neither does work that emits nothing.
    store.write(async |tx| insert(tx, "silent").await).await.unwrap();
    assert!(poll!(Box::pin(store.emitted())).is_pending());
}

#[tokio::test]
async fn a_transaction_without_a_key_emits_with_its_commit() {
    let file = File::create().await;
    let store = file.open().await;
    let mut dropped = store.begin().await.unwrap();
    dropped.emit(event("dropped"));
    drop(dropped);
    let mut tx = store.begin().await.unwrap();
    tx.emit(event("kept"));
    tx.commit().await.unwrap();
    assert_eq!(labels(&store).await, ["kept"]);
}

#[tokio::test]
async fn a_connection_whose_commits_may_vanish_cannot_emit() {
    let file = File::create().await;
    let store = file.open().await;
    let mut connection = file.connection();
    for (synchronous, accepted) in [("OFF", false), ("NORMAL", false), ("FULL", true), ("EXTRA", true)] {
        connection.pragma_update(None, "synchronous", synchronous).unwrap();
        let mut transaction = immediate(&mut connection);
        let emitted = Join::<Sqlite>::emit(&mut transaction, &[event(synchronous)]).await;
        assert_eq!(emitted.is_ok(), accepted, "{synchronous}: {emitted:?}");
        if let Err(error) = emitted {
            assert!(matches!(&error, Error::Settings(why) if why.contains("synchronous = FULL")), "{error:?}");
        }
        transaction.commit().unwrap();
    }
    assert_eq!(labels(&store).await, ["FULL", "EXTRA"]);
}

#[tokio::test]
async fn a_run_that_was_forgotten_lends_its_identity_to_nobody() {
    let file = File::create().await;
    let mut connection = file.connection();
    let many: Vec<Event> = (0..5_000).map(|_| event("many")).collect();
    let mut transaction = immediate(&mut connection);
    let claim = Join::<Sqlite>::claim(&mut transaction, &common::ask(&Key::random())).await.unwrap();
    assert!(matches!(claim, semel::Claim::Fresh(_)));
    Join::<Sqlite>::savepoint(&mut transaction).await.unwrap();
    Join::<Sqlite>::emit(&mut transaction, &many).await.unwrap();
    Join::<Sqlite>::rollback_to_savepoint(&mut transaction).await.unwrap();
    transaction.commit().unwrap();
    // The same connection goes on: what it emits now is nobody's, and each transaction has its own limit.
    for _ in 0..3 {
        let mut transaction = immediate(&mut connection);
        Join::<Sqlite>::emit(&mut transaction, &many).await.unwrap();
        transaction.commit().unwrap();
    }
    let sql = "SELECT count(*), count(DISTINCT id) FROM semel_events";
    let counts: (i64, i64) = connection.query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(counts, (15_000, 15_000));
}

fn immediate(connection: &mut Connection) -> Transaction<'_> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}
