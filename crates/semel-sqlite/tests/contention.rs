//! Another process holds the file's write lock.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::{File, ask, completion, fresh, insert};
use futures_util::future::join_all;
use futures_util::poll;
use semel::{Claim, Error, Key, Store, Tx as _};
use semel_sqlite::{Options, Sqlite};

async fn operation(store: &Sqlite, label: &str) -> Result<(), Error> {
    let mut tx = fresh(store, &Key::random()).await;
    insert(&mut tx, label).await?;
    let done = completion(tx.execution());
    tx.complete(&done).await
}

fn is_locked_out(result: &Result<(), Error>) -> bool {
    matches!(result, Err(Error::Unavailable(cause)) if cause.to_string().contains("another process"))
}

#[tokio::test]
async fn a_writer_held_by_another_process_is_unavailable_after_the_busy_timeout() {
    let file = File::create().await;
    let store = file.open_with(Options { busy_timeout: Duration::from_millis(100), ..file.options() }).await;
    let key = Key::random();
    let other = file.connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut tx = fresh(&store, &key).await;
    let error = insert(&mut tx, "blocked").await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable(cause) if cause.to_string().contains("another process")), "{error:?}");
    assert!(!tx.begun(), "nothing ran");
    other.execute_batch("ROLLBACK").unwrap();
    insert(&mut tx, "free").await.unwrap();
    let done = completion(tx.execution());
    tx.complete(&done).await.unwrap();
    assert_eq!((file.effects("blocked"), file.effects("free")), (0, 1));
}

#[tokio::test]
async fn all_who_wait_for_another_process_are_told_at_once() {
    let file = File::create().await;
    let busy_timeout = Duration::from_millis(500);
    let store = file.open_with(Options { busy_timeout, ..file.options() }).await;
    let other = file.connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    let told = join_all((0..20).map(|_| operation(&store, "blocked"))).await;
    assert!(told.iter().all(is_locked_out), "{told:?}");
    assert!(began.elapsed() < busy_timeout * 5, "they waited one after another: {:?}", began.elapsed());
    other.execute_batch("ROLLBACK").unwrap();
    operation(&store, "free").await.unwrap();
    assert_eq!((file.effects("blocked"), file.effects("free")), (0, 1));
}

#[tokio::test]
async fn the_clock_of_a_lock_goes_on_when_one_who_waits_goes_away() {
    let file = File::create().await;
    let busy_timeout = Duration::from_millis(500);
    let store = file.open_with(Options { busy_timeout, ..file.options() }).await;
    let other = file.connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    let (mut first, mut second) = (Box::pin(operation(&store, "blocked")), Box::pin(operation(&store, "blocked")));
    assert!(poll!(&mut first).is_pending());
    assert!(poll!(&mut second).is_pending());
    // The first has the turn and gives up before its time; the second takes the turn over, not the whole wait.
    assert!(tokio::time::timeout(busy_timeout * 9 / 10, &mut first).await.is_err());
    drop(first);
    assert!(is_locked_out(&second.await));
    assert!(began.elapsed() < busy_timeout * 9 / 5, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_deadline_shorter_than_the_busy_timeout_is_not_what_fails() {
    let file = File::create().await;
    let impatient = Options { deadline: Duration::from_millis(400), ..file.options() };
    assert!(impatient.busy_timeout > impatient.deadline);
    let store = file.open_with(impatient).await;
    let other = file.connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for _ in 0..3 {
        let told = join_all((0..5).map(|_| operation(&store, "blocked"))).await;
        assert!(told.iter().all(is_locked_out), "{told:?}");
    }
    let key = Key::random();
    let mut tx = fresh(&store, &key).await;
    assert!(is_locked_out(&insert(&mut tx, "blocked").await));
    drop(tx);
    other.execute_batch("ROLLBACK").unwrap();
    assert!(matches!(store.claim(&ask(&key)).await.unwrap(), Claim::Fresh(_)));
    operation(&store, "free").await.unwrap();
    assert_eq!((file.effects("blocked"), file.effects("free")), (0, 1));
}
