//! Messages are accepted in groups, and nobody is told of a duplicate before the COMMIT that made it one.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::task::Poll;

use common::{File, event, insert, labels};
use futures_util::poll;
use semel::inbox::{Accepted, JoinInbox, Offset, Rule, Sequence, Version};
use semel::{Consumed, Consumer, Delivery, Error, Inbox, Semel, Tx as _};
use semel_sqlite::rusqlite::{Connection, TransactionBehavior};
use semel_sqlite::{Deferred, Options, Sqlite, Tx};

/// A constraint that speaks up at COMMIT only.
const TABLES: &str = "CREATE TABLE parents (id INTEGER PRIMARY KEY);
                      CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)";

fn consumer() -> Consumer {
    Consumer::new("receipts").unwrap()
}

fn message(id: &str) -> Delivery {
    Delivery::by_id(id).unwrap()
}

fn sequence(sequence: u64) -> Delivery {
    let place = Sequence { incarnation: "history".to_owned(), topic: "charges".to_owned(), lane: 7, sequence };
    Delivery::by_sequence(place).unwrap()
}

fn record(offset: i64) -> Delivery {
    let place = Offset { source: "cluster".to_owned(), topic: "charges".to_owned(), partition: 0, from: 0, offset };
    Delivery::by_offset(place).unwrap()
}

/// Accepts a message that nobody has seen, and acts on it.
async fn applied(store: &Sqlite, delivery: &Delivery, label: &str) -> Tx {
    let (mut tx, accepted) = store.accept(&consumer(), std::slice::from_ref(delivery)).await.unwrap();
    assert_eq!(accepted, [Accepted::First]);
    insert(&mut tx, label).await.unwrap();
    tx
}

#[tokio::test]
async fn a_duplicate_is_told_after_the_commit_that_made_it_one_and_not_before() {
    for delivery in [message("m"), sequence(3), record(3)] {
        let file = File::create().await;
        let store = file.open().await;
        let (who, same) = (consumer(), std::slice::from_ref(&delivery));
        let first = applied(&store, &delivery, "applied").await;
        let mut again = Box::pin(store.accept(&who, same));
        assert!(poll!(&mut again).is_pending(), "the first has the turn");
        let mut last = store.begin().await.unwrap();
        let mut waiting = Box::pin(insert(&mut last, "last"));
        assert!(poll!(&mut waiting).is_pending());
        let mut committing = Box::pin(store.commit_consumed(first));
        assert!(poll!(&mut committing).is_pending());
        // The redelivery sees what the first has done, and the last works on in the same group.
        assert!(poll!(&mut again).is_pending(), "the first is not committed");
        waiting.await.unwrap();
        assert!(poll!(&mut again).is_pending());
        assert_eq!(file.effects("applied"), 0);

        let (first, again, last) = tokio::join!(committing, again, last.commit());
        first.unwrap();
        last.unwrap();
        let (tx, accepted) = again.unwrap();
        assert_eq!(accepted, [Accepted::Duplicate]);
        store.commit_consumed(tx).await.unwrap();
        assert_eq!((file.effects("applied"), store.commits()), (1, 1));
        assert!(file.is_write_lock_free());
    }
}

#[tokio::test]
async fn a_message_whose_commit_fails_is_nobodys_duplicate() {
    let file = File::create().await;
    file.connection().execute_batch(TABLES).unwrap();
    let store = file.open().await;
    let (who, delivery) = (consumer(), message("m"));
    let first = applied(&store, &delivery, "applied").await;
    let mut again = Box::pin(store.accept(&who, std::slice::from_ref(&delivery)));
    assert!(poll!(&mut again).is_pending());
    let mut last = store.begin().await.unwrap();
    let mut waiting = Box::pin(last.execute("INSERT INTO children VALUES (7)", ()));
    assert!(poll!(&mut waiting).is_pending());
    let mut committing = Box::pin(store.commit_consumed(first));
    assert!(poll!(&mut committing).is_pending());
    assert!(poll!(&mut again).is_pending());
    waiting.await.unwrap();
    let (first, again, last) = tokio::join!(committing, again, last.commit());
    assert!(matches!((first, last), (Err(Error::Conflict(_)), Err(Error::Conflict(_)))));
    assert!(matches!(again, Err(Error::Conflict(_))), "what it saw is gone");
    assert_eq!(file.effects("applied"), 0);
    // Whoever brings it now is the first.
    let tx = applied(&store, &delivery, "applied").await;
    store.commit_consumed(tx).await.unwrap();
    assert_eq!(file.effects("applied"), 1);
}

#[tokio::test]
async fn a_delivery_that_raced_with_a_failed_commit_applies_by_itself() {
    let file = File::create().await;
    file.connection().execute_batch(TABLES).unwrap();
    let store = file.open().await;
    let semel = Semel::new(store.clone());
    let (who, delivery) = (consumer(), message("m"));
    let mut first = applied(&store, &delivery, "lost").await;
    first.execute("INSERT INTO children VALUES (7)", ()).await.unwrap();
    let mut again = Box::pin(semel.consume(&who, &delivery, async |tx| insert(tx, "applied").await));
    assert!(poll!(&mut again).is_pending());
    let (first, again) = tokio::join!(store.commit_consumed(first), again);
    assert!(first.is_err(), "its parent is missing");
    assert_eq!(again.unwrap(), Consumed::Applied(()));
    assert_eq!((file.effects("lost"), file.effects("applied")), (0, 1));
}

#[tokio::test]
async fn what_is_new_in_a_batch_waits_with_its_duplicates_and_applies() {
    let file = File::create().await;
    let store = file.open().await;
    let (who, batch) = (consumer(), [message("new"), message("m"), sequence(9), message("new")]);
    let first = applied(&store, &batch[1], "first").await;
    let mut again = Box::pin(store.accept(&who, &batch));
    assert!(poll!(&mut again).is_pending());
    let (first, again) = tokio::join!(store.commit_consumed(first), again);
    first.unwrap();
    assert_eq!(store.commits(), 1);
    let (mut tx, accepted) = again.unwrap();
    assert_eq!(accepted, [Accepted::First, Accepted::Duplicate, Accepted::First, Accepted::Duplicate]);
    insert(&mut tx, "new").await.unwrap();
    store.commit_consumed(tx).await.unwrap();
    assert_eq!((file.effects("first"), file.effects("new")), (1, 1));
    let (_, accepted) = store.accept(&who, &batch).await.unwrap();
    assert_eq!(accepted, [Accepted::Duplicate; 4]);
}

#[tokio::test]
async fn answers_about_isolated_messages_stand_or_fall_with_the_commit() {
    for breaks in [true, false] {
        let file = File::create().await;
        file.connection().execute_batch(TABLES).unwrap();
        let store = file.open().await;
        let (who, delivery) = (consumer(), message("m"));
        let mut first = applied(&store, &delivery, "applied").await;
        if breaks {
            first.execute("INSERT INTO children VALUES (7)", ()).await.unwrap();
        }
        let mut again = store.begin_consuming().await.unwrap();
        let mut asking = Box::pin(store.accept_isolated(&mut again, &who, &delivery));
        assert!(poll!(&mut asking).is_pending(), "the first has the turn");
        let mut committing = Box::pin(store.commit_consumed(first));
        assert!(poll!(&mut committing).is_pending());
        assert_eq!(asking.await.unwrap(), Accepted::Duplicate);
        assert!(poll!(&mut committing).is_pending(), "both are in one group");
        let (first, again) = tokio::join!(committing, store.commit_consumed(again));
        assert_eq!((first.is_err(), again.is_err()), (breaks, breaks));
        assert_eq!((file.effects("applied") == 0, store.commits()), (breaks, 1));
    }
}

#[tokio::test]
async fn a_duplicate_of_what_is_committed_waits_for_nobody() {
    let file = File::create().await;
    let store = file.open().await;
    let who = consumer();
    let batch = [message("m"), sequence(5), record(3), message("new")];
    let (tx, accepted) = store.accept(&who, &batch[..3]).await.unwrap();
    assert_eq!(accepted, [Accepted::First; 3]);
    store.commit_consumed(tx).await.unwrap();
    let other = applied(&store, &message("other"), "other").await;
    let mut asking = Box::pin(store.accept(&who, &batch));
    assert!(poll!(&mut asking).is_pending(), "the other has the turn");
    let mut committing = Box::pin(store.commit_consumed(other));
    assert!(poll!(&mut committing).is_pending());
    let Poll::Ready(answer) = poll!(&mut asking) else { panic!("there is nobody to wait for") };
    let (tx, accepted) = answer.unwrap();
    assert_eq!(accepted, [Accepted::Duplicate, Accepted::Duplicate, Accepted::Duplicate, Accepted::First]);
    assert_eq!((file.effects("other"), store.commits()), (0, 1), "the other is in the same group");
    tx.rollback().await;
    committing.await.unwrap();
    assert_eq!((file.effects("other"), store.commits()), (1, 2));
}

#[tokio::test]
async fn messages_that_run_together_share_one_commit() {
    let file = File::create().await;
    let semel = Semel::new(file.open().await);
    let (who, store) = (consumer(), semel.store());
    let mut first = store.begin().await.unwrap();
    insert(&mut first, "first").await.unwrap();
    let deliveries: Vec<Delivery> = (1..=32).map(|n| message(&n.to_string())).chain((1..=32).map(sequence)).collect();
    let mut consuming = Vec::new();
    for delivery in &deliveries {
        let mut one = Box::pin(semel.consume(&who, delivery, async |tx| insert(tx, "together").await));
        assert!(poll!(&mut one).is_pending());
        consuming.push(one);
    }
    let (first, consumed) = tokio::join!(first.commit(), futures_util::future::join_all(consuming));
    first.unwrap();
    assert!(consumed.into_iter().all(|consumed| consumed.unwrap() == Consumed::Applied(())));
    assert_eq!((file.effects("together"), store.commits()), (64, 1));
}

#[tokio::test]
async fn a_turn_past_its_deadline_leaves_no_proof() {
    let file = File::create().await;
    let deadline = std::time::Duration::from_secs(1);
    let store = file.open_with(Options { deadline, ..file.options() }).await;
    let (who, delivery) = (consumer(), message("m"));
    let late = applied(&store, &delivery, "late").await;
    // It gets the turn when the deadline has taken it back.
    let (tx, accepted) = store.accept(&who, std::slice::from_ref(&delivery)).await.unwrap();
    assert_eq!(accepted, [Accepted::First]);
    assert!(matches!(store.commit_consumed(late).await, Err(Error::Deadline)));
    store.commit_consumed(tx).await.unwrap();
    assert_eq!(file.effects("late"), 0);
}

#[tokio::test]
async fn a_message_that_was_refused_half_way_can_only_be_taken_back() {
    let file = File::create().await;
    let store = file.open().await;
    let who = consumer();
    let deferred = |rows| Deferred::expecting(rows, "INSERT INTO effects (label) VALUES ('deferred')");
    for takes_back in [true, false] {
        let (good, bad) = (message(&format!("good {takes_back}")), message(&format!("bad {takes_back}")));
        let mut tx = store.begin_consuming().await.unwrap();
        assert_eq!(store.accept_isolated(&mut tx, &who, &good).await.unwrap(), Accepted::First);
        tx.emit(event("good"));
        store.keep(&mut tx).await.unwrap();
        assert_eq!(store.accept_isolated(&mut tx, &who, &bad).await.unwrap(), Accepted::First);
        tx.emit(event("bad"));
        tx.defer(deferred(1));
        tx.defer(deferred(2));
        assert!(matches!(store.keep(&mut tx).await, Err(Error::RowCount(_))));
        if takes_back {
            store.take_back(&mut tx).await.unwrap();
            store.commit_consumed(tx).await.unwrap();
        } else {
            assert!(store.keep(&mut tx).await.is_err());
            assert!(store.accept_isolated(&mut tx, &who, &message("another")).await.is_err());
            assert!(store.commit_consumed(tx).await.is_err());
        }
        let (_, accepted) = store.accept(&who, &[good, bad]).await.unwrap();
        let kept = if takes_back { Accepted::Duplicate } else { Accepted::First };
        assert_eq!(accepted, [kept, Accepted::First]);
    }
    assert_eq!(file.effects("deferred"), 0);
    assert_eq!(labels(&store).await, ["good"]);
    assert!(file.is_write_lock_free());
}

#[tokio::test]
async fn a_message_that_is_still_open_is_kept_by_the_next_and_by_the_commit() {
    let file = File::create().await;
    let store = file.open().await;
    let who = consumer();
    let mut tx = store.begin_consuming().await.unwrap();
    for id in ["one", "two"] {
        assert_eq!(store.accept_isolated(&mut tx, &who, &message(id)).await.unwrap(), Accepted::First);
        tx.emit(event(id));
        tx.defer(Deferred::expecting(1, "INSERT INTO effects (label) VALUES (?1)").bind(id.to_owned()));
    }
    assert_eq!(store.accept_isolated(&mut tx, &who, &message("one")).await.unwrap(), Accepted::Duplicate);
    store.commit_consumed(tx).await.unwrap();
    assert_eq!((file.effects("one"), file.effects("two")), (1, 1));
    assert_eq!(labels(&store).await, ["one", "two"]);
    let mut tx = store.begin_consuming().await.unwrap();
    assert!(store.take_back(&mut tx).await.is_err(), "there is none");
}

fn immediate(connection: &mut Connection) -> semel_sqlite::rusqlite::Transaction<'_> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

#[tokio::test]
async fn a_connection_whose_commits_may_vanish_cannot_accept() {
    let file = File::create().await;
    let mut connection = file.connection();
    for (synchronous, accepts) in [("OFF", false), ("NORMAL", false), ("FULL", true), ("EXTRA", true)] {
        connection.pragma_update(None, "synchronous", synchronous).unwrap();
        let mut transaction = immediate(&mut connection);
        let accepted = JoinInbox::<Sqlite>::accept(&mut transaction, &consumer(), &[message(synchronous)]).await;
        assert_eq!(accepted.is_ok(), accepts, "{synchronous}: {accepted:?}");
        if let Err(error) = accepted {
            assert!(matches!(&error, Error::Settings(why) if why.contains("synchronous = FULL")), "{error:?}");
        }
        transaction.commit().unwrap();
    }
}

#[tokio::test]
async fn a_joined_transaction_decides_nothing_by_an_old_snapshot() {
    let file = File::create().await;
    let store = file.open().await;
    let who = consumer();
    let tx = applied(&store, &record(0), "before").await;
    store.commit_consumed(tx).await.unwrap();
    let mut connection = file.connection();
    let mut transaction = connection.transaction().unwrap();
    let read = "SELECT next FROM semel_offsets";
    assert_eq!(transaction.query_row(read, (), |row| row.get::<_, i64>(0)).unwrap(), 1);
    let place = Offset { source: "cluster".to_owned(), topic: "charges".to_owned(), partition: 0, from: 1, offset: 8 };
    let tx = applied(&store, &Delivery::by_offset(place.clone()).unwrap(), "after").await;
    store.commit_consumed(tx).await.unwrap();
    // By the old offset, whoever reads on from the new one would be fenced.
    let next = Delivery::by_offset(Offset { from: 9, offset: 9, ..place }).unwrap();
    let accepted = JoinInbox::<Sqlite>::accept(&mut transaction, &who, std::slice::from_ref(&next)).await;
    assert!(matches!(accepted, Err(Error::Conflict(_))), "{accepted:?}");
    transaction.rollback().unwrap();
    let accepted = JoinInbox::<Sqlite>::accept(&mut immediate(&mut connection), &who, &[next]).await;
    assert_eq!(accepted.unwrap(), [Accepted::First]);
}

#[tokio::test]
async fn a_joined_refusal_leaves_nothing_behind_even_if_the_caller_goes_on() {
    let file = File::create().await;
    let (store, who) = (file.open().await, consumer());
    // As many holes as there may be, and a message behind another one that carries a version, too.
    let holes: Vec<Delivery> = (1..=1_000).map(|n| sequence(2 * n)).collect();
    let (tx, _) = store.accept(&who, &holes).await.unwrap();
    store.commit_consumed(tx).await.unwrap();
    let version = Version { entity: "account".to_owned(), version: 1, rule: Rule::Each };
    let batch = [message("m"), sequence(3_000).with_version(version.clone()).unwrap()];
    let mut connection = file.connection();
    let mut transaction = immediate(&mut connection);
    let refused = JoinInbox::<Sqlite>::accept(&mut transaction, &who, &batch).await;
    assert!(matches!(refused, Err(Error::Ahead { lane: 7, limit: 1_000, .. })), "{refused:?}");
    transaction.commit().unwrap();
    let after = [message("m"), message("n").with_version(version).unwrap()];
    let (_, accepted) = store.accept(&who, &after).await.unwrap();
    assert_eq!(accepted, [Accepted::First; 2]);
}
