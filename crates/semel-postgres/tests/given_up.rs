//! Futures that are dropped at any await, statements that never leave, and connections that must not be used again.
#![allow(clippy::unwrap_used, missing_docs)]

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use semel::once::Error as OnceError;
use semel::{Ask, Claim, Error, Fingerprint, Key, Outcome, Reply, Scope, Semel, Store, Tx as _};
use semel_postgres::tokio_postgres::types::Type;
use semel_postgres::{Deferred, Options, Postgres, Statements, Tx, Typed};
use semel_testkit::database::TempDatabase;

const UPDATE: &str = "UPDATE accounts SET balance = balance + $1 WHERE id = $2";

async fn database() -> TempDatabase {
    let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
    let tables = "CREATE TABLE effects (label text NOT NULL); CREATE TABLE accounts (id int PRIMARY KEY, balance int);
                  INSERT INTO accounts VALUES (1, 0)";
    database.connect().await.batch_execute(tables).await.unwrap();
    database
}

/// One connection only, so that whatever is left on it meets the next request.
async fn one_connection(database: &TempDatabase) -> Semel<Postgres> {
    let options = Options { pool_size: 1, ..Options::default() };
    Semel::new(Postgres::connect(&database.url(), options).await.unwrap())
}

fn ask(key: &Key) -> Ask {
    Ask::new(&Scope::new("tenant", "charge").unwrap(), key, &Fingerprint::of_bytes(b"x"))
}

async fn once<E>(
    semel: &Semel<Postgres>,
    key: &Key,
    effect: impl AsyncFn(&mut Tx) -> Result<Reply, E>,
) -> Result<Outcome, OnceError<E>> {
    let ask = ask(key);
    semel.once(&ask.scope, &ask.key, &ask.fingerprint, effect).await
}

async fn charge(semel: &Semel<Postgres>, key: &Key) -> Result<Outcome, OnceError<Error>> {
    let label = key.to_string();
    once(semel, key, async move |tx| {
        tx.execute("INSERT INTO effects VALUES ($1)", &[&label]).await?;
        Ok(Reply::new(201, label.clone()).unwrap())
    })
    .await
}

async fn effects(database: &TempDatabase, key: &Key) -> i64 {
    let client = database.connect().await;
    client.query_one("SELECT count(*) FROM effects WHERE label = $1", &[&key.as_str()]).await.unwrap().get(0)
}

/// Polls a future as it wakes, `times` times at most, and drops it; says whether it had ended.
async fn poll_and_drop<F: Future>(times: usize, future: F) -> bool {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|context| {
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if polls >= times => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_dropped_at_any_await_leaves_nothing_for_the_next_request_to_commit() {
    let database = database().await;
    let semel = one_connection(&database).await;
    for polls in 1..200 {
        let (dropped, next) = (Key::random(), Key::random());
        let ended = poll_and_drop(polls, charge(&semel, &dropped)).await;
        assert!(matches!(charge(&semel, &next).await.unwrap(), Outcome::Fresh(_)), "after {polls} polls");
        assert_eq!(effects(&database, &next).await, 1);
        // Either the drop came too late to stop the commit, or nothing is there: never an effect without its key.
        let outcome = charge(&semel, &dropped).await.unwrap();
        assert_eq!(effects(&database, &dropped).await, 1, "after {polls} polls: {outcome:?}");
        if ended {
            assert!(polls > 1, "some runs were dropped on the way");
            return;
        }
    }
    panic!("the run never ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_dropped_at_any_await_or_run_out_blocks_nobody() {
    let database = database().await;
    let options = Options { pool_size: 1, ..Options::default() };
    let waiting = Postgres::connect(&database.url(), options).await.unwrap();
    let holder = one_connection(&database).await;
    for polls in [1, 2, 3, 5, 8, 13, usize::MAX] {
        let (key, other) = (Key::random(), Key::random());
        let Claim::Fresh(tx) = holder.claim(&ask(&key)).await.unwrap() else { panic!("the key is new") };
        let patient = ask(&key).waiting(Duration::from_millis(100));
        let claim = waiting.claim(&patient);
        if polls == usize::MAX {
            assert!(matches!(claim.await.unwrap(), Claim::InFlight { .. }));
        } else {
            poll_and_drop(polls, claim).await;
        }
        // The only connection of the one who waited serves the next request at once.
        let Claim::Fresh(unrelated) = waiting.claim(&ask(&other)).await.unwrap() else { panic!("{polls} polls") };
        unrelated.rollback().await;
        assert_eq!(waiting.reap(1).await.unwrap(), 0);
        tx.rollback().await;
        // Nothing holds the key once its run has ended.
        let Claim::Fresh(tx) = holder.claim(&ask(&key).waiting(Duration::from_secs(20))).await.unwrap() else {
            panic!("after {polls} polls the key is still held");
        };
        tx.rollback().await;
    }
}

#[tokio::test]
async fn a_deferred_statement_that_the_driver_refuses_to_send_fails_the_whole_run() {
    let database = database().await;
    for statements in [Statements::Named, Statements::Unnamed] {
        let options = Options { statements, ..Options::default() };
        let semel = Semel::new(Postgres::connect(&database.url(), options).await.unwrap());
        let forgotten = || Deferred::expecting(1, UPDATE).bind(100_i32);
        let mistyped = || Deferred::expecting(1, UPDATE).bind(Typed(100_i32, Type::TEXT)).bind(1_i32);
        for (wrong, position) in [(forgotten as fn() -> Deferred, 0), (mistyped as fn() -> Deferred, 1)] {
            let key = Key::random();
            let label = key.to_string();
            let failed = once(&semel, &key, async move |tx| {
                tx.execute("INSERT INTO effects VALUES ($1)", &[&label]).await?;
                tx.defer(wrong());
                Ok::<Reply, Error>(Reply::new(201, "").unwrap())
            })
            .await;
            assert!(matches!(failed, Err(OnceError::Store(Error::Statement(_)))), "{position}: {failed:?}");
            assert_eq!(effects(&database, &key).await, 0);
            assert!(matches!(charge(&semel, &key).await.unwrap(), Outcome::Fresh(_)));
        }
    }
}

#[tokio::test]
async fn a_statement_that_the_work_gave_up_is_not_committed_behind_its_back() {
    let database = database().await;
    let semel = one_connection(&database).await;
    // Also if the next one is answered. What is refused with 402 is rolled back, that statement included.
    for (status, goes_on) in [(201, false), (201, true), (402, false), (402, true)] {
        let key = Key::random();
        let label = key.to_string();
        let run = once(&semel, &key, async move |tx| {
            let slow = "INSERT INTO effects SELECT $1 FROM pg_sleep(0.3)";
            let given_up = tokio::time::timeout(Duration::from_millis(50), tx.execute(slow, &[&label])).await;
            assert!(given_up.is_err());
            if goes_on {
                tx.query_one("SELECT 1", &[]).await?;
            }
            Ok::<Reply, Error>(Reply::new(status, "not debited").unwrap())
        })
        .await;
        if status == 402 {
            assert!(matches!(run, Ok(Outcome::Fresh(_))), "{run:?}");
            assert!(matches!(charge(&semel, &key).await.unwrap(), Outcome::Replayed(_)));
            assert_eq!(effects(&database, &key).await, 0);
        } else {
            assert!(matches!(run, Err(OnceError::Store(Error::Statement(_)))), "{run:?}");
            assert!(matches!(charge(&semel, &key).await.unwrap(), Outcome::Fresh(_)));
            assert_eq!(effects(&database, &key).await, 1);
        }
    }
}

#[tokio::test]
async fn an_ordinary_commit_after_a_failed_statement_is_no_success() {
    let database = database().await;
    let store = Postgres::connect(&database.url(), Options::default()).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    tx.execute("INSERT INTO effects VALUES ('ordinary')", &[]).await.unwrap();
    let _ = tx.execute("INSERT INTO accounts VALUES (1, 0)", &[]).await;
    assert!(tx.commit().await.is_err());
    assert_eq!(effects(&database, &Key::new("ordinary").unwrap()).await, 0);
    let mut tx = store.begin().await.unwrap();
    tx.execute("INSERT INTO effects VALUES ('ordinary')", &[]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(effects(&database, &Key::new("ordinary").unwrap()).await, 1);
}

#[tokio::test]
async fn a_table_that_changes_under_a_prepared_statement_costs_one_more_run() {
    let database = database().await;
    let semel = one_connection(&database).await;
    let read = async || {
        let key = Key::random();
        once(&semel, &key, async move |tx| {
            let row = tx.query_one("SELECT * FROM accounts WHERE id = $1", &[&1_i32]).await?;
            Ok::<Reply, Error>(Reply::new(200, row.len().to_string()).unwrap())
        })
        .await
        .unwrap()
    };
    assert_eq!(read().await.reply().body(), "2");
    database.connect().await.batch_execute("ALTER TABLE accounts ADD COLUMN note text").await.unwrap();
    assert_eq!(read().await.reply().body(), "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_that_the_work_turns_into_a_refusal_is_not_stored() {
    let database = database().await;
    let semel = Semel::new(Postgres::connect(&database.url(), Options::default()).await.unwrap());
    database.connect().await.batch_execute("INSERT INTO accounts VALUES (2, 0)").await.unwrap();
    let start = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let mut workers = tokio::task::JoinSet::new();
    for (first, second) in [(1_i32, 2_i32), (2, 1)] {
        let (semel, start) = (semel.clone(), start.clone());
        workers.spawn(async move {
            let key = Key::random();
            let met = std::sync::atomic::AtomicBool::new(false);
            once(&semel, &key, async move |tx| {
                tx.execute(UPDATE, &[&1_i32, &first]).await?;
                if !met.swap(true, std::sync::atomic::Ordering::Relaxed) {
                    start.wait().await;
                }
                match tx.execute(UPDATE, &[&1_i32, &second]).await {
                    Ok(_) => Ok::<Reply, Error>(Reply::new(201, "").unwrap()),
                    Err(_) => Ok(Reply::new(422, "").unwrap()),
                }
            })
            .await
            .unwrap()
        });
    }
    for outcome in workers.join_all().await {
        assert_eq!(outcome.reply().status(), 201, "a deadlock is nobody's last word");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_was_given_up_is_cancelled_on_the_server() {
    let database = database().await;
    let semel = one_connection(&database).await;
    let key = Key::random();
    let slow = once(&semel, &key, async move |tx| {
        tx.query("SELECT pg_sleep(600)", &[]).await?;
        Ok::<Reply, Error>(Reply::new(201, "").unwrap())
    });
    assert!(tokio::time::timeout(Duration::from_millis(300), slow).await.is_err());
    // The claim gets through only when the statement has ended, long before its ten minutes or the deadline.
    let patient = ask(&key).waiting(Duration::from_secs(20));
    let other = Postgres::connect(&database.url(), Options::default()).await.unwrap();
    let Claim::Fresh(tx) = other.claim(&patient).await.unwrap() else { panic!("the statement still runs") };
    tx.rollback().await;
}
