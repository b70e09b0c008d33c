//! Flows in one file: several handles and processes, groups, and a file that was restored.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::flow::{LEASE, audit, begun, done, rows, terms, with_a_step};
use common::{File, completion, fresh, insert};
use futures_util::poll;
use semel::flow::{Attempt, Change, FlowFilter, FlowState, FlowStore, Job, MAX_JOBS, Resolution, State};
use semel::inbox::Accepted;
use semel::{Consumer, Delivery, Error, Inbox, Key, Store, Tx as _};
use semel_sqlite::{Options, Sqlite};

const FILE: &str = "SEMEL_TEST_FILE";

async fn stage(store: &Sqlite, label: &str) {
    let staged = store.write(async |tx| {
        tx.stage(Job::new("tenant", "mail", label).unwrap());
        Ok::<(), Error>(())
    });
    staged.await.unwrap();
}

/// Takes flows over until there are none, and leaves an effect for each in a commit of its own.
async fn take_all(store: &Sqlite, holder: &str) {
    loop {
        let taken = store.take_flows("mail", &terms(holder), 3).await.unwrap();
        if taken.is_empty() {
            return;
        }
        for journal in taken {
            let label = journal.lease.execution.to_string();
            store.write(async |tx| insert(tx, &label).await).await.unwrap();
        }
    }
}

/// The body of a process that [`processes_never_take_one_flow_both`] starts; alone it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taker() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let store = Sqlite::open(PathBuf::from(path), Options::default()).await.unwrap();
    tokio::join!(take_all(&store, "one"), take_all(&store, "other"));
    store.write(async |tx| insert(tx, "taker").await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_never_take_one_flow_both() {
    const JOBS: i64 = 120;
    let file = File::create().await;
    let store = file.open_with(Options::default()).await;
    for number in 0..JOBS {
        stage(&store, &format!("job-{number}")).await;
    }
    let takers: Vec<_> = (0..2)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "taker", "--nocapture"])
                .env(FILE, file.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let other = file.open_with(Options::default()).await;
    tokio::join!(take_all(&store, "here"), take_all(&other, "there"));
    for mut taker in takers {
        assert!(taker.wait().unwrap().success());
    }
    assert_eq!(file.effects("taker"), 2, "every process took part");
    let sql = "SELECT count(*), count(DISTINCT label) FROM effects WHERE label <> 'taker'";
    let counts: (i64, i64) = file.connection().query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(counts, (JOBS, JOBS));
}

#[tokio::test]
async fn a_worker_of_another_handle_is_fenced_at_its_first_statement() {
    let file = File::create().await;
    let (one, other) = (file.open().await, file.open().await);
    let late = begun(&one, &Key::random()).await;
    let mut step = one.begin_step(&late.lease, "reserve").await.unwrap();
    file.clock.advance(LEASE * 2);
    let taken = other.take_flows("order", &terms("next"), 1).await.unwrap();
    assert_eq!((taken[0].lease.execution, taken[0].lease.epoch), (late.lease.execution, 2));
    assert!(matches!(insert(&mut step, "late").await, Err(Error::Fenced)));
    assert!(matches!(one.settle_step(&late.lease, &done("reserve")).await, Err(Error::Fenced)));
    assert_eq!((file.effects("late"), rows(&file)), (0, (1, 0)));
}

#[tokio::test]
async fn a_job_that_another_handle_staged_is_found_by_looking() {
    let file = File::create().await;
    let (service, worker) = (file.open().await, file.open().await);
    stage(&service, "receipt").await;
    let clone = service.clone();
    let hearing = async { tokio::join!(service.flow_staged(), clone.flow_staged()) };
    tokio::time::timeout(Duration::from_secs(10), hearing).await.unwrap();
    assert!(poll!(Box::pin(service.flow_staged())).is_pending(), "nothing was staged since");
    assert!(poll!(Box::pin(worker.flow_staged())).is_pending(), "it was not staged here");
    let taken = worker.take_flows("mail", &terms("worker"), 10).await.unwrap();
    assert_eq!(taken.iter().map(|journal| &journal.input.bytes[..]).collect::<Vec<_>>(), [b"\"receipt\""]);
    assert!(service.take_flows("mail", &terms("service"), 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn nobody_hears_of_a_job_before_its_groups_commit() {
    let file = File::create().await;
    let (store, beside) = (file.open().await, file.open().await);
    let (mut first, mut second) = (fresh(&store, &Key::random()).await, fresh(&store, &Key::random()).await);
    let replies = [first.execution(), second.execution()].map(completion);
    insert(&mut first, "first").await.unwrap();
    first.stage(Job::new("tenant", "mail", "first").unwrap());
    let mut waiting = Box::pin(insert(&mut second, "second"));
    assert!(poll!(&mut waiting).is_pending());
    let mut completing = Box::pin(first.complete(&replies[0]));
    assert!(poll!(&mut completing).is_pending());
    waiting.await.unwrap();
    // The first has written its job, and the second works in the same group.
    let mut hearing = Box::pin(store.flow_staged());
    assert!(poll!(&mut hearing).is_pending());
    assert!(beside.take_flows("mail", &terms("early"), 1).await.unwrap().is_empty());
    let (one, two) = tokio::join!(completing, second.complete(&replies[1]));
    one.unwrap();
    two.unwrap();
    tokio::time::timeout(Duration::from_secs(10), hearing).await.unwrap();
    assert_eq!(beside.take_flows("mail", &terms("worker"), 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_group_that_does_not_commit_stages_nothing_and_wakes_nobody() {
    let file = File::create().await;
    let tables = "CREATE TABLE parents (id INTEGER PRIMARY KEY);
                  CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)";
    file.connection().execute_batch(tables).unwrap();
    let store = file.open().await;
    let journal = begun(&store, &Key::random()).await;
    let mut tx = store.begin_step(&journal.lease, "reserve").await.unwrap();
    tx.execute("INSERT INTO children VALUES (7)", ()).await.unwrap();
    tx.stage(Job::new("tenant", "mail", "orphan").unwrap());
    assert!(matches!(tx.record(&done("reserve")).await, Err(Error::Statement(_))));
    assert_eq!(rows(&file), (1, 0));

    let mut tx = store.begin().await.unwrap();
    (0..=MAX_JOBS).for_each(|_| tx.stage(Job::new("tenant", "mail", "many").unwrap()));
    assert!(matches!(tx.commit().await, Err(Error::TooManyEvents { .. })));
    assert_eq!(rows(&file), (1, 0));
    assert!(poll!(Box::pin(store.flow_staged())).is_pending());
}

#[tokio::test]
async fn a_message_that_is_taken_back_takes_its_jobs_along() {
    let file = File::create().await;
    let store = file.open().await;
    let consumer = Consumer::new("receipts").unwrap();
    let mut tx = store.begin_consuming().await.unwrap();
    for (id, kept) in [("good", true), ("bad", false), ("last", true)] {
        let delivery = Delivery::by_id(id).unwrap();
        assert_eq!(store.accept_isolated(&mut tx, &consumer, &delivery).await.unwrap(), Accepted::First);
        tx.stage(Job::new("tenant", "mail", id).unwrap());
        if !kept {
            store.take_back(&mut tx).await.unwrap();
        }
    }
    store.commit_consumed(tx).await.unwrap();
    let taken = store.take_flows("mail", &terms("worker"), 10).await.unwrap();
    let inputs: Vec<_> = taken.iter().map(|journal| journal.input.bytes.clone()).collect();
    assert_eq!(inputs, ["\"good\"", "\"last\""]);
}

#[tokio::test]
async fn what_is_recorded_is_told_after_its_groups_commit() {
    let file = File::create().await;
    let store = file.open().await;
    let lease = begun(&store, &Key::random()).await.lease;
    let settled = done("reserve");
    let mut step = store.begin_step(&lease, "reserve").await.unwrap();
    insert(&mut step, "reserved").await.unwrap();
    let mut other = fresh(&store, &Key::random()).await;
    let mut waiting = Box::pin(insert(&mut other, "other"));
    assert!(poll!(&mut waiting).is_pending());
    let mut recording = Box::pin(step.record(&settled));
    assert!(poll!(&mut recording).is_pending());
    waiting.await.unwrap();
    // The step is recorded, and the other works in the same group.
    let mut reading = Box::pin(store.read_flow(&lease));
    assert!(poll!(&mut reading).is_pending());
    assert_eq!(rows(&file), (1, 0));
    let reply = completion(other.execution());
    let (recorded, completed, read) = tokio::join!(recording, other.complete(&reply), reading);
    recorded.unwrap();
    completed.unwrap();
    assert_eq!(read.unwrap().entries.len(), 1);
    assert_eq!(rows(&file), (1, 1));
}

#[tokio::test]
async fn in_a_restored_file_a_call_without_a_row_is_held_and_can_be_resolved() {
    let file = File::create().await;
    let store = file.open().await;
    let lease = with_a_step(&store, &Key::random()).await.lease;
    assert!(!store.read_flow(&lease).await.unwrap().restored);
    file.connection().execute("UPDATE semel_outbox SET incarnation = 'another'", ()).unwrap();
    assert!(store.read_flow(&lease).await.unwrap().restored);

    store.hold_flow(&lease, "charge", "it may have happened").await.unwrap();
    store.hold_flow(&lease, "charge", "it may have happened").await.unwrap();
    assert_eq!(store.flow_pressure().await.unwrap().unknown, 1);
    file.clock.advance(Duration::from_secs(20 * 365 * 24 * 60 * 60));
    assert_eq!(store.reap(10).await.unwrap(), 0, "it is kept until somebody resolves it");
    let refused = store.retry_flow(lease.execution, &audit(), false).await.unwrap();
    assert!(matches!(refused, Change::Refused(FlowState::Held, why) if why.contains("charge")));
    let resolved =
        store.resolve_flow(lease.execution, "charge", &Resolution::DidNotHappen, &audit(), false).await.unwrap();
    assert!(matches!(resolved, Change::Made(before) if before.state == FlowState::Held));

    let taken = store.take_flows("order", &terms("next"), 1).await.unwrap();
    let entry = &taken[0].entries[1];
    assert_eq!((entry.state, entry.intent.is_none()), (State::Pending, true), "nobody has counted an attempt");
    let attempt = Attempt { step: "charge", provider: "psp", key: "derived", number: 1, opened: LEASE };
    store.count_attempt(&taken[0].lease, &attempt).await.unwrap();
    let read = store.read_flow(&taken[0].lease).await.unwrap();
    let intent = read.entries[1].intent.clone().unwrap();
    assert_eq!((intent.provider.as_str(), intent.key.as_str(), intent.attempts), ("psp", "derived", vec![None]));
    assert!(intent.age >= LEASE && intent.since_attempt < LEASE);
}

#[tokio::test]
async fn undoing_a_commit_that_fails_holds_the_flow_until_it_is_tried_again() {
    let file = File::create().await;
    let store = file.open().await;
    let lease = with_a_step(&store, &Key::random()).await.lease;
    store.hold_flow(&lease, "~undo.reserve", "the stock is gone").await.unwrap();
    assert_eq!((rows(&file), store.flow_pressure().await.unwrap().unknown), ((1, 1), 0));
    let retried = store.retry_flow(lease.execution, &audit(), false).await.unwrap();
    assert!(matches!(retried, Change::Made(before) if before.cause.as_deref() == Some("the stock is gone")));
    assert!(matches!(store.read_flow(&lease).await, Err(Error::Fenced)), "who held it is fenced");
    assert_eq!(store.take_flows("order", &terms("next"), 1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_flow_that_is_cancelled_while_it_runs_is_due_when_its_worker_pauses() {
    let file = File::create().await;
    let store = file.open().await;
    for (cause, due) in [(None, 1), (Some("the stock is away"), 0)] {
        let lease = begun(&store, &Key::random()).await.lease;
        let cancelled = store.cancel_flow(lease.execution, &audit(), false).await.unwrap();
        assert!(matches!(cancelled, Change::Made(before) if before.state == FlowState::Running));
        for _ in 0..2 {
            store.park_flow(&lease, LEASE, cause).await.unwrap();
        }
        let taken = store.take_flows("order", &terms("next"), 10).await.unwrap();
        assert_eq!((taken.len(), taken.iter().all(|journal| journal.cancelled)), (due, true));
    }
    let failures = store.list_flows(&FlowFilter { limit: 1, ..FlowFilter::default() }).await.unwrap()[0].failures;
    assert_eq!(failures, 1, "asked twice, counted once");
}
