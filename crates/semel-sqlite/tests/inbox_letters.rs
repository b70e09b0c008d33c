//! Letters in groups: what is told of them, and when.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{File, insert};
use futures_util::poll;
use semel::inbox::{Accepted, Offset, Sequence};
use semel::letter::{Letter, LetterFilter, LetterId, LetterRecord, LetterState};
use semel::operator::Audit;
use semel::source::Message;
use semel::{Consumer, Delivery, Error, Inbox, Tx as _};
use semel_sqlite::{Sqlite, Tx};

/// A constraint that speaks up at COMMIT only.
const TABLES: &str = "CREATE TABLE parents (id INTEGER PRIMARY KEY);
                      CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)";
const BREAK: &str = "INSERT INTO children VALUES (7)";
const MEND: &str = "INSERT INTO parents VALUES (7)";

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

fn letter(id: &str) -> Letter {
    let message = Message {
        id: id.to_owned(),
        topic: "charges".to_owned(),
        ordering_key: "account".to_owned(),
        message_type: "charge.created".to_owned(),
        producer: "shop".to_owned(),
        content_type: "application/json".to_owned(),
        payload: "{}".into(),
        headers: vec![("traceparent".to_owned(), "00-1".to_owned())],
        sequence: None,
        offset: None,
    };
    Letter { message, cause: "it does not work".to_owned(), attempts: 3 }
}

fn audit() -> Audit {
    Audit { actor: "ada".to_owned(), reason: "a test".to_owned() }
}

async fn run(store: &Sqlite, sql: &str) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    tx.execute(sql, ()).await?;
    tx.commit().await
}

async fn letters(store: &Sqlite) -> Vec<LetterRecord> {
    store.letters(&LetterFilter::default(), 100).await.unwrap()
}

async fn states(store: &Sqlite) -> Vec<LetterState> {
    letters(store).await.into_iter().map(|letter| letter.state).collect()
}

async fn redrive(store: &Sqlite) -> u64 {
    store.redrive_letters(&LetterFilter::default(), &audit(), false).await.unwrap()
}

/// A letter that is to be tried again.
async fn redriven(store: &Sqlite) -> LetterId {
    assert!(store.dead_letter(&consumer(), &message("m"), &letter("m")).await.unwrap());
    assert_eq!(redrive(store).await, 1);
    let [redriven] = &store.redriven("receipts", 10).await.unwrap()[..] else { panic!("there is one") };
    redriven.id
}

async fn applied(store: &Sqlite, id: LetterId, label: &str) -> Tx {
    let mut tx = store.take_letter(id).await.unwrap().unwrap();
    insert(&mut tx, label).await.unwrap();
    tx
}

#[tokio::test]
async fn a_message_that_was_set_aside_is_a_duplicate_after_the_commit_and_not_before() {
    for (delivery, breaks) in
        [message("m"), sequence(3), record(3)].into_iter().flat_map(|d| [(d.clone(), false), (d, true)])
    {
        let file = File::create().await;
        file.connection().execute_batch(TABLES).unwrap();
        let store = file.open().await;
        let (who, same, dead) = (consumer(), std::slice::from_ref(&delivery), letter("m"));
        let mut holder = store.begin().await.unwrap();
        insert(&mut holder, "holder").await.unwrap();
        let mut setting_aside = Box::pin(store.dead_letter(&who, &delivery, &dead));
        assert!(poll!(&mut setting_aside).is_pending(), "the holder has the turn");
        let mut again = Box::pin(store.dead_letter(&who, &delivery, &dead));
        assert!(poll!(&mut again).is_pending());
        let mut accepting = Box::pin(store.accept(&who, same));
        assert!(poll!(&mut accepting).is_pending());
        let mut last = Box::pin(run(&store, if breaks { BREAK } else { MEND }));
        assert!(poll!(&mut last).is_pending());
        let mut holding = Box::pin(holder.commit());
        assert!(poll!(&mut holding).is_pending());
        // Each has its turn in the same group, and sees what the ones before it did.
        assert!(poll!(&mut setting_aside).is_pending());
        assert!(poll!(&mut again).is_pending());
        assert!(poll!(&mut accepting).is_pending());
        assert_eq!(store.seen(&who, same).await.unwrap(), [false]);
        assert!(letters(&store).await.is_empty());
        let (holding, first, again, accepted, _) = tokio::join!(holding, setting_aside, again, accepting, last);
        assert_eq!((holding.is_err(), store.commits()), (breaks, 1), "{delivery:?}");
        if breaks {
            let conflict = |error: &Error| matches!(error, Error::Conflict(_));
            assert!(first.is_err_and(|error| conflict(&error)) && again.is_err_and(|error| conflict(&error)));
            assert!(accepted.is_err_and(|error| conflict(&error)), "what it saw is gone");
            assert!(letters(&store).await.is_empty());
            assert_eq!(store.seen(&who, same).await.unwrap(), [false]);
            assert!(store.dead_letter(&who, &delivery, &dead).await.unwrap());
        } else {
            assert!(first.unwrap() && !again.unwrap());
            assert_eq!(accepted.unwrap().1, [Accepted::Duplicate]);
        }
        assert_eq!(store.seen(&who, same).await.unwrap(), [true]);
        assert_eq!(states(&store).await, [LetterState::Dead]);
    }
}

#[tokio::test]
async fn what_was_seen_is_what_is_committed() {
    let file = File::create().await;
    let store = file.open().await;
    let who = consumer();
    let mine = [message("m"), sequence(3), record(3)];
    let asked = [message("m"), sequence(3), sequence(3), sequence(2), record(3), record(0), record(4)];
    assert_eq!(store.seen(&who, &asked).await.unwrap(), [false; 7], "nobody knows the consumer");
    let (tx, _) = store.accept(&who, &mine).await.unwrap();
    assert_eq!(store.seen(&who, &asked).await.unwrap(), [false; 7]);
    tx.rollback().await;
    assert_eq!(store.seen(&who, &asked).await.unwrap(), [false; 7]);
    let (tx, accepted) = store.accept(&who, &mine).await.unwrap();
    assert_eq!(accepted, [Accepted::First; 3]);
    store.commit_consumed(tx).await.unwrap();
    let seen = [true, true, true, false, true, true, false];
    assert_eq!(store.seen(&who, &asked).await.unwrap(), seen);
    assert_eq!(file.open().await.seen(&who, &asked).await.unwrap(), seen);
    assert_eq!(store.seen(&who.clone().in_generation(1), &asked).await.unwrap(), [false; 7]);
    assert!(store.seen(&who, &[]).await.unwrap().is_empty());
    assert!(matches!(store.seen(&who, &vec![message("m"); 10_001]).await, Err(Error::Settings(_))));
}

#[tokio::test]
async fn a_letter_is_over_for_others_after_the_commit_that_applies_it_and_not_before() {
    for breaks in [false, true] {
        let file = File::create().await;
        file.connection().execute_batch(TABLES).unwrap();
        let store = file.open().await;
        let id = redriven(&store).await;
        let first = applied(&store, id, "applied").await;
        let mut again = Box::pin(store.take_letter(id));
        assert!(poll!(&mut again).is_pending(), "the first has the turn");
        let mut last = Box::pin(run(&store, if breaks { BREAK } else { MEND }));
        assert!(poll!(&mut last).is_pending());
        let mut committing = Box::pin(store.commit_consumed(first));
        assert!(poll!(&mut committing).is_pending());
        assert!(poll!(&mut again).is_pending(), "the first is not committed");
        assert_eq!(states(&store).await, [LetterState::Redriven]);
        let (first, again, _) = tokio::join!(committing, again, last);
        if breaks {
            assert!(matches!((first, again), (Err(Error::Conflict(_)), Err(Error::Conflict(_)))));
            assert_eq!(states(&store).await, [LetterState::Redriven]);
            store.commit_consumed(applied(&store, id, "applied").await).await.unwrap();
        } else {
            first.unwrap();
            assert!(again.unwrap().is_none());
        }
        assert_eq!(states(&store).await, [LetterState::Applied]);
        assert_eq!(file.effects("applied"), 1);
        assert!(store.take_letter(id).await.unwrap().is_none());
        assert!(file.is_write_lock_free());
    }
}

#[tokio::test]
async fn a_letter_whose_transaction_ends_without_a_commit_goes_to_the_next() {
    let file = File::create().await;
    let store = file.open().await;
    let id = redriven(&store).await;
    let first = applied(&store, id, "first").await;
    let mut again = Box::pin(store.take_letter(id));
    assert!(poll!(&mut again).is_pending());
    first.rollback().await;
    let mut tx = again.await.unwrap().unwrap();
    insert(&mut tx, "second").await.unwrap();
    tx.emit(common::event("second"));
    store.commit_consumed(tx).await.unwrap();
    assert_eq!((file.effects("first"), file.effects("second")), (0, 1));
    assert_eq!(common::labels(&store).await, ["second"]);
    assert_eq!(states(&store).await, [LetterState::Applied]);
}

#[tokio::test]
async fn many_letters_are_redriven_in_turns_that_others_share_each_with_its_audit_row() {
    let file = File::create().await;
    let store = file.open().await;
    let (who, other) = (consumer(), Consumer::new("others").unwrap());
    let dead: Vec<(Delivery, Letter)> = (0..1_200).map(|n| (message(&n.to_string()), letter(&n.to_string()))).collect();
    let setting_aside = dead.iter().map(|(delivery, letter)| store.dead_letter(&who, delivery, letter));
    assert!(futures_util::future::join_all(setting_aside).await.into_iter().all(|aside| aside.unwrap()));
    assert!(store.dead_letter(&other, &dead[0].0, &dead[0].1).await.unwrap());
    let before = store.commits();
    let filter = LetterFilter { consumer: Some("receipts".to_owned()), ..LetterFilter::default() };
    assert_eq!(store.redrive_letters(&filter, &audit(), true).await.unwrap(), 1_200);
    assert_eq!(store.commits(), before, "nothing is changed");
    assert_eq!(store.redrive_letters(&filter, &audit(), false).await.unwrap(), 1_200);
    let rows = "SELECT count(DISTINCT letter), count(*) FROM semel_audit
                WHERE action = 'inbox redrive' AND consumer = 'receipts' AND actor = 'ada' AND reason = 'a test'";
    let rows: (i64, i64) = file.connection().query_row(rows, (), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(rows, (1_200, 1_200));
    assert!((2..=3).contains(&(store.commits() - before)));
    assert_eq!(store.redrive_letters(&filter, &audit(), false).await.unwrap(), 0);
    let applied = LetterFilter { state: Some(LetterState::Applied), ..LetterFilter::default() };
    assert_eq!(store.redrive_letters(&applied, &audit(), true).await.unwrap(), 0);
    let redriven = store.redriven("receipts", 3).await.unwrap();
    let first = letters(&store).await[..3].to_vec();
    assert_eq!(redriven, first, "the oldest first, and no more than were asked for");
    let found = &store.consumers(Some("others")).await.unwrap()[0];
    assert_eq!((found.dead, found.redriven), (1, 0));
}

#[tokio::test]
async fn a_change_by_hand_without_a_reason_is_refused() {
    let file = File::create().await;
    let store = file.open().await;
    let id = redriven(&store).await;
    store.bury(id, "again").await.unwrap();
    let silent = Audit { actor: "ada".to_owned(), reason: String::new() };
    assert!(matches!(store.redrive_letters(&LetterFilter::default(), &silent, false).await, Err(Error::Settings(_))));
    assert!(matches!(store.replay_consumer("receipts", &silent, false).await, Err(Error::Settings(_))));
    assert_eq!(states(&store).await, [LetterState::Dead]);
    assert_eq!(store.consumers(None).await.unwrap()[0].generation, 0);
}
