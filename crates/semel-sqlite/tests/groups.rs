//! Operations commit in groups, and nobody is told before the COMMIT.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use common::{File, ask, completion, fresh, insert};
use futures_util::future::join_all;
use futures_util::poll;
use semel::{Claim, Error, Key, Store, Tx as _};
use semel_sqlite::{Deferred, Options, sqlite_error};

#[tokio::test]
async fn operations_that_run_together_share_one_commit() {
    let file = File::create().await;
    let store = file.open().await;
    // While this transaction holds the writer, all others queue up behind it.
    let mut first = store.begin().await.unwrap();
    insert(&mut first, "together").await.unwrap();
    let mut running = Vec::new();
    for _ in 0..63 {
        let store = store.clone();
        let mut operation = Box::pin(async move {
            let mut tx = fresh(&store, &Key::random()).await;
            insert(&mut tx, "together").await?;
            let done = completion(tx.execution());
            tx.complete(&done).await
        });
        assert!(poll!(&mut operation).is_pending());
        running.push(operation);
    }
    let (first, others) = tokio::join!(first.commit(), join_all(running));
    first.unwrap();
    others.into_iter().for_each(|done| done.unwrap());
    assert_eq!(file.effects("together"), 64);
    assert_eq!(store.commits(), 1);
}

#[tokio::test]
async fn no_answer_and_no_replay_leaves_before_its_groups_commit() {
    let file = File::create().await;
    let store = file.open().await;
    let (key, other) = (Key::random(), Key::random());
    let mut first = fresh(&store, &key).await;
    let mut second = fresh(&store, &other).await;
    insert(&mut first, "first").await.unwrap();

    let mut waiting = Box::pin(insert(&mut second, "second"));
    assert!(poll!(&mut waiting).is_pending(), "the writer has one turn");
    let done = completion(first.execution());
    let mut completing = Box::pin(first.complete(&done));
    assert!(poll!(&mut completing).is_pending());
    waiting.await.unwrap();

    // The first is done, and the second works in the same group.
    assert!(poll!(&mut completing).is_pending());
    assert_eq!(file.effects("first"), 0);
    assert!(matches!(store.claim(&ask(&key)).await.unwrap(), Claim::InFlight { .. }));

    let done = completion(second.execution());
    let (one, two) = tokio::join!(completing, second.complete(&done));
    one.unwrap();
    two.unwrap();
    assert_eq!((file.effects("first"), file.effects("second")), (1, 1));
    assert_eq!(store.commits(), 1);
    assert!(matches!(store.claim(&ask(&key)).await.unwrap(), Claim::Replay(_)));
}

#[tokio::test]
async fn a_client_that_goes_away_while_its_group_commits_loses_nothing() {
    let file = File::create().await;
    let store = file.open().await;
    let (key, other) = (Key::random(), Key::random());
    let mut first = fresh(&store, &key).await;
    let mut second = fresh(&store, &other).await;
    insert(&mut first, "first").await.unwrap();
    let mut waiting = Box::pin(insert(&mut second, "second"));
    assert!(poll!(&mut waiting).is_pending());
    let done = completion(first.execution());
    let mut completing = Box::pin(first.complete(&done));
    assert!(poll!(&mut completing).is_pending());
    drop(completing);
    waiting.await.unwrap();
    // The second rolls back; what the first did commits all the same, at once.
    second.rollback().await;
    let patient = ask(&key).waiting(Duration::from_secs(10));
    assert!(matches!(store.claim(&patient).await.unwrap(), Claim::Replay(_)));
    assert_eq!((file.effects("first"), file.effects("second")), (1, 0));
}

#[tokio::test]
async fn dropped_futures_leak_neither_the_turn_nor_the_key() {
    let file = File::create().await;
    let store = file.open().await;
    for _ in 0..50 {
        let (key, other, third) = (Key::random(), Key::random(), Key::random());
        let mut holder = fresh(&store, &key).await;
        insert(&mut holder, "dropped").await.unwrap();
        let mut waiter = fresh(&store, &other).await;
        let mut waiting = Box::pin(insert(&mut waiter, "dropped"));
        assert!(poll!(&mut waiting).is_pending());
        let mut given = fresh(&store, &third).await;
        let mut taking = Box::pin(insert(&mut given, "dropped"));
        assert!(poll!(&mut taking).is_pending());
        // One goes while it waits, one while it holds the turn, one after it was given the turn and before it knows.
        drop(waiting);
        drop(holder);
        drop(taking);
        drop((waiter, given));
        for key in [key, other, third] {
            drop(fresh(&store, &key).await);
        }
        assert!(file.is_write_lock_free());
    }
    assert_eq!(file.effects("dropped"), 0);
}

#[tokio::test]
async fn an_idle_writer_holds_no_write_lock() {
    let file = File::create().await;
    let store = file.open().await;
    assert!(file.is_write_lock_free());
    let mut tx = store.begin().await.unwrap();
    assert!(file.is_write_lock_free(), "a transaction without a statement holds nothing");
    insert(&mut tx, "committed").await.unwrap();
    assert!(!file.is_write_lock_free());
    tx.commit().await.unwrap();
    assert!(file.is_write_lock_free());
    let mut tx = store.begin().await.unwrap();
    insert(&mut tx, "rolled back").await.unwrap();
    drop(tx);
    assert!(file.is_write_lock_free());
    let key = Key::random();
    let mut tx = fresh(&store, &key).await;
    tx.defer(Deferred::expecting(2, "INSERT INTO effects (label) VALUES ('deferred')"));
    assert!(file.is_write_lock_free(), "a deferred statement waits for the completion");
    let done = completion(tx.execution());
    assert!(matches!(tx.complete(&done).await, Err(Error::RowCount(_))));
    assert!(file.is_write_lock_free());
    assert_eq!(store.commits(), 1);
}

#[tokio::test]
async fn a_full_group_commits_while_others_wait() {
    let file = File::create().await;
    let store = file.open_with(Options { group_limit: 1, ..file.options() }).await;
    let (key, other) = (Key::random(), Key::random());
    let mut first = fresh(&store, &key).await;
    let mut second = fresh(&store, &other).await;
    insert(&mut first, "first").await.unwrap();
    let mut waiting = Box::pin(insert(&mut second, "second"));
    assert!(poll!(&mut waiting).is_pending());
    let done = completion(first.execution());
    first.complete(&done).await.unwrap();
    assert_eq!(file.effects("first"), 1);
    waiting.await.unwrap();
}

#[tokio::test]
async fn a_statement_that_rolls_everything_back_tells_the_whole_group() {
    let file = File::create().await;
    file.connection()
        .execute_batch("CREATE TABLE single (id INTEGER PRIMARY KEY); INSERT INTO single VALUES (1)")
        .unwrap();
    let store = file.open().await;
    let (key, other) = (Key::random(), Key::random());
    let mut first = fresh(&store, &key).await;
    let mut second = fresh(&store, &other).await;
    insert(&mut first, "first").await.unwrap();
    let mut waiting = Box::pin(second.execute("INSERT OR ROLLBACK INTO single VALUES (1)", ()));
    assert!(poll!(&mut waiting).is_pending());
    let done = completion(first.execution());
    let mut completing = Box::pin(first.complete(&done));
    assert!(poll!(&mut completing).is_pending());
    assert!(sqlite_error(&waiting.await.unwrap_err()).is_some());
    assert!(matches!(completing.await, Err(Error::Conflict(_))), "the first was lost and may run again");
    assert!(matches!(insert(&mut second, "second").await, Err(Error::Conflict(_))), "the transaction is over");
    assert_eq!((file.effects("first"), file.effects("second")), (0, 0));
    drop(second);
    assert!(file.is_write_lock_free());
    drop((fresh(&store, &key).await, fresh(&store, &other).await));
}

#[tokio::test]
async fn a_constraint_that_fails_at_commit_fails_its_own_operation_only() {
    let file = File::create().await;
    let tables = "CREATE TABLE parents (id INTEGER PRIMARY KEY);
                  CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)";
    file.connection().execute_batch(tables).unwrap();
    let store = file.open().await;
    let (good, bad) = (Key::random(), Key::random());
    let both = async || {
        let (mut first, mut second) = (fresh(&store, &good).await, fresh(&store, &bad).await);
        let (one, two) = (completion(first.execution()), completion(second.execution()));
        insert(&mut first, "good").await.unwrap();
        let mut waiting = Box::pin(second.execute("INSERT INTO children VALUES (7)", ()));
        assert!(poll!(&mut waiting).is_pending());
        let mut completing = Box::pin(first.complete(&one));
        assert!(poll!(&mut completing).is_pending());
        waiting.await.unwrap();
        tokio::join!(completing, second.complete(&two))
    };
    // SQLite does not say whose it was, so both may run again, each in a commit of its own.
    let (first, second) = both().await;
    assert!(matches!((first, second), (Err(Error::Conflict(_)), Err(Error::Conflict(_)))));
    let (first, second) = both().await;
    assert!(first.is_ok());
    assert!(matches!(second, Err(Error::Statement(_))));
    assert_eq!(file.effects("good"), 1);
    assert!(file.is_write_lock_free());
}

#[tokio::test]
async fn the_work_cannot_end_the_transaction_that_it_shares() {
    let file = File::create().await;
    let store = file.open().await;
    let mut tx = fresh(&store, &Key::random()).await;
    insert(&mut tx, "kept in").await.unwrap();
    for sql in ["COMMIT", "-- why\n end", "ROLLBACK", "RELEASE semel_turn", "SAVEPOINT mine"] {
        assert!(matches!(tx.execute(sql, ()).await, Err(Error::Statement(_))), "{sql}");
        assert!(matches!(tx.execute_batch(sql).await, Err(Error::Statement(_))), "{sql}");
    }
    assert!(tx.execute("INSERT INTO effects VALUES ('kept in'); COMMIT", ()).await.is_err());
    assert_eq!(file.effects("kept in"), 0);
    drop(tx);
    assert_eq!(file.effects("kept in"), 0);
}
