//! An operation that holds the writer past its deadline is rolled back, and its late statements are refused.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::{File, ask, completion, fresh, insert};
use semel::{Claim, Error, Key, Store, Tx as _};
use semel_sqlite::{Options, Sqlite};

const DEADLINE: Duration = Duration::from_secs(1);

async fn impatient(file: &File) -> Sqlite {
    file.open_with(Options { deadline: DEADLINE, ..file.options() }).await
}

/// A statement that would run for hours.
const ENDLESS: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000000)
                       SELECT count(*) FROM n";

#[tokio::test]
async fn the_deadline_frees_the_writer_and_the_late_owner_is_refused() {
    let file = File::create().await;
    let store = impatient(&file).await;
    let key = Key::random();
    let mut late = fresh(&store, &key).await;
    insert(&mut late, "late").await.unwrap();
    // Waits for the turn that the deadline takes back.
    let mut next = store.begin().await.unwrap();
    insert(&mut next, "next").await.unwrap();
    next.commit().await.unwrap();
    assert!(matches!(insert(&mut late, "late").await, Err(Error::Deadline)));
    let done = completion(late.execution());
    assert!(matches!(late.complete(&done).await, Err(Error::Deadline)));
    assert_eq!((file.effects("late"), file.effects("next")), (0, 1));
    assert!(matches!(store.claim(&ask(&key)).await.unwrap(), Claim::Fresh(_)));
}

#[tokio::test]
async fn a_completion_past_the_deadline_commits_nothing() {
    let file = File::create().await;
    let store = impatient(&file).await;
    let mut late = fresh(&store, &Key::random()).await;
    insert(&mut late, "late").await.unwrap();
    // The same thread that should answer is held up, as if the process had been stopped.
    let held_up = Instant::now();
    while held_up.elapsed() < DEADLINE + Duration::from_millis(50) {
        std::hint::spin_loop();
    }
    let done = completion(late.execution());
    assert!(matches!(late.complete(&done).await, Err(Error::Deadline)));
    assert_eq!(file.effects("late"), 0);
}

#[tokio::test]
async fn a_key_whose_run_is_past_the_deadline_can_be_claimed_again() {
    let file = File::create().await;
    let store = impatient(&file).await;
    for with_statement in [true, false] {
        let key = Key::random();
        let mut late = fresh(&store, &key).await;
        if with_statement {
            insert(&mut late, "late").await.unwrap();
        }
        let patient = ask(&key).waiting(Duration::from_secs(10));
        let Claim::Fresh(mut again) = store.claim(&patient).await.unwrap() else { panic!("the key is free again") };
        assert!(matches!(insert(&mut late, "late").await, Err(Error::Deadline)), "with_statement: {with_statement}");
        insert(&mut again, "again").await.unwrap();
        let done = completion(again.execution());
        again.complete(&done).await.unwrap();
        drop(late);
        assert!(matches!(store.claim(&ask(&key)).await.unwrap(), Claim::Replay(_)));
    }
    assert_eq!((file.effects("late"), file.effects("again")), (0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_runs_past_the_deadline_is_interrupted() {
    let file = File::create().await;
    let store = impatient(&file).await;
    let mut endless = fresh(&store, &Key::random()).await;
    insert(&mut endless, "endless").await.unwrap();
    assert!(matches!(endless.query_row(ENDLESS, (), |_| Ok(())).await, Err(Error::Deadline)));
    assert!(matches!(insert(&mut endless, "endless").await, Err(Error::Deadline)));
    // A write that is interrupted makes SQLite roll back the whole transaction; the writer goes on with a new one.
    let mut endless = store.begin().await.unwrap();
    let write = format!("INSERT INTO effects (label) SELECT 'endless' WHERE ({ENDLESS}) > 0");
    assert!(matches!(endless.execute(&write, ()).await, Err(Error::Deadline)));
    let mut next = store.begin().await.unwrap();
    insert(&mut next, "next").await.unwrap();
    next.commit().await.unwrap();
    assert_eq!((file.effects("endless"), file.effects("next")), (0, 1));
    assert!(file.is_write_lock_free());
}
