//! A step and its record are one commit, and a worker that lost its flow records nothing.

use std::time::Duration;

use semel::flow::{FlowState, FlowStore, Kind, Settled, State};
use semel::intent::Fault;
use semel::operator::{Eviction, KeyState};
use semel::outbox::{Cursor, PageLimit};
use semel::sink::Lane;
use semel::{Completion, Error, Event, EventId, Finished, Key, Lease, Outbox, Store, Stored, Tx};

use super::harness::Harness;
use super::lab::{DAY, FLOW, Lab, attempt, audit, done, entry, kept, reply, steps};

/// I1.
pub async fn a_step_becomes_visible_with_its_record<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    let mut tx = lab.store().begin_step(&journal.lease, "reserve").await.unwrap();
    assert_eq!(tx.execution(), journal.lease.execution);
    H::insert(&mut tx, "effect").await.unwrap();
    assert_eq!(lab.harness.count("effect").await, 0);
    assert_eq!(lab.shows(&journal.lease).await.steps.len(), 0);
    tx.record(&done("reserve", Kind::Commit, b"{\"held\":2}")).await.unwrap();
    assert_eq!(lab.harness.count("effect").await, 1);
    let recorded = lab.reads(&journal.lease).await;
    let reserve = entry(&recorded, "reserve");
    assert_eq!((reserve.kind, reserve.state), (Kind::Commit, State::Done));
    assert_eq!((&reserve.result, &reserve.intent), (&Some(kept(b"{\"held\":2}")), &None));
}

/// I1: what was rolled back was not recorded, and can be done again.
pub async fn a_step_that_does_not_commit_leaves_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    for rolls_back in [true, false] {
        let mut tx = lab.store().begin_step(&journal.lease, "reserve").await.unwrap();
        H::insert(&mut tx, "effect").await.unwrap();
        if rolls_back {
            tx.rollback().await;
        } else {
            drop(tx);
        }
    }
    assert_eq!(steps(&lab.reads(&journal.lease).await), Vec::<&str>::new());
    assert_eq!(lab.harness.count("effect").await, 0);
    lab.commits(&journal.lease, "reserve", "effect").await.unwrap();
    assert_eq!(lab.harness.count("effect").await, 1);
}

/// I2: a worker that did not hear that its step was committed does not commit it twice.
pub async fn a_step_that_was_recorded_is_not_committed_again<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    lab.commits(&journal.lease, "reserve", "effect").await.unwrap();
    let again = lab.commits(&journal.lease, "reserve", "effect").await;
    assert!(matches!(again, Err(Error::Raced)), "{again:?}");
    assert_eq!(lab.harness.count("effect").await, 1);
    lab.abandons().await;
    let taken = lab.takes_one(FLOW).await;
    let again = lab.commits(&taken.lease, "reserve", "effect").await;
    assert!(matches!(again, Err(Error::Raced)), "{again:?}");
    assert_eq!(lab.harness.count("effect").await, 1);
    lab.commits(&taken.lease, "deliver", "effect").await.unwrap();
    assert_eq!(lab.harness.count("effect").await, 2);
}

/// I7: whatever it writes, a worker that was taken over from is refused and changes nothing.
pub async fn every_write_of_a_worker_that_lost_its_flow_is_refused<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let late = lab.begins().await;
    lab.counts(&late.lease, "charge", 1).await.unwrap();
    lab.abandons().await;
    let current = lab.takes_one(FLOW).await;
    refuses_all(&lab, &late.lease).await;
    let after = lab.reads(&current.lease).await;
    // The one failure is the loss of the worker itself.
    assert_eq!((steps(&after), after.failures, &after.unwinding), (vec!["charge"], 1, &None));
    assert_eq!(entry(&after, "charge").intent.as_ref().unwrap().attempts, [None::<Fault>]);
    assert_eq!(lab.shows(&current.lease).await.record.state, FlowState::Running);
    assert_eq!(lab.harness.count("late").await, 0);
    assert_eq!(lab.finishes(&current.lease, 201, "effect").await.unwrap(), Finished::Stored);
    // The flow has ended: nothing can be added to it, by anybody.
    refuses_all(&lab, &current.lease).await;
    assert_eq!(lab.harness.count("late").await, 0);
}

/// I7: a key that was evicted and begun anew starts again at epoch 1, and a zombie of the old run must not pass for the
/// new one.
pub async fn a_zombie_of_an_evicted_flow_is_refused<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let zombie = lab.begins_under(&key).await;
    lab.abandons().await;
    let evicted = lab.store().evict_key(&lab.scope, &key, None, &audit("stuck"), false).await.unwrap();
    assert!(matches!(evicted, Eviction::Evicted(_)));
    let current = lab.begins_under(&key).await;
    assert_eq!((zombie.lease.epoch, current.lease.epoch), (1, 1));
    refuses_all(&lab, &zombie.lease).await;
    assert_eq!(steps(&lab.reads(&current.lease).await), Vec::<&str>::new());
    lab.finishes(&current.lease, 201, "effect").await.unwrap();
}

/// Steps are named; their order is that in which they were first recorded, whenever they ended.
pub async fn steps_are_read_in_the_order_in_which_they_were_first_recorded<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    let lease = &journal.lease;
    lab.commits(lease, "z", "effect").await.unwrap();
    lab.counts(lease, "m", 1).await.unwrap();
    lab.commits(lease, "a", "effect").await.unwrap();
    lab.store().settle_step(lease, &done("k", Kind::Sleep, b"5")).await.unwrap();
    lab.store().settle_step(lease, &done("m", Kind::Call, b"7")).await.unwrap();
    assert_eq!(steps(&lab.reads(lease).await), ["z", "m", "a", "k"]);
    let shown = lab.shows(lease).await;
    let names: Vec<&str> = shown.steps.iter().map(|step| step.entry.step.as_str()).collect();
    assert_eq!(names, ["z", "m", "a", "k"]);
    assert_eq!(shown.record.last_step.as_deref(), Some("k"));
}

/// A lost answer is asked for again; a result that is known never changes.
pub async fn a_settled_step_stays_as_it_was_settled<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    let lease = &journal.lease;
    lab.counts(lease, "charge", 1).await.unwrap();
    lab.counts(lease, "mail", 1).await.unwrap();
    let refused = Settled { state: State::Failed, ..done("mail", Kind::Call, b"{\"no\":1}") };
    let ends = [done("charge", Kind::Call, b"{\"id\":1}"), refused, done("cool-down", Kind::Sleep, b"5")];
    for _ in 0..2 {
        for end in &ends {
            lab.store().settle_step(lease, end).await.unwrap();
        }
    }
    let otherwise = Settled { state: State::Failed, ..done("charge", Kind::Call, b"{\"no\":1}") };
    let _ = lab.store().settle_step(lease, &otherwise).await;
    let recorded = lab.reads(lease).await;
    for end in &ends {
        let entry = entry(&recorded, &end.step);
        assert_eq!((entry.kind, entry.state, &entry.result), (end.kind, end.state, &Some(end.result.clone())));
    }
    assert_eq!(recorded.entries.len(), 3);
}

/// The ids of what a step emits follow from its name and not from its place, so that a step which runs again emits the
/// same.
pub async fn events_of_a_step_are_numbered_by_its_name<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    let mut expected = Vec::new();
    for step in ["reserve", "deliver"] {
        let mut tx = lab.store().begin_step(&journal.lease, step).await.unwrap();
        for ordinal in 0..2 {
            tx.emit(Event::new("orders", "one", "test.happened", step).unwrap());
            expected.push(EventId::derive(journal.lease.execution.named_step(step), ordinal));
        }
        tx.record(&done(step, Kind::Commit, b"1")).await.unwrap();
    }
    let tx = lab.store().begin_step(&journal.lease, "undone").await.unwrap();
    drop(with_event(tx));
    let mut tx = lab.store().begin_step(&journal.lease, "finish").await.unwrap();
    tx.emit(Event::new("orders", "one", "test.happened", "finish").unwrap());
    expected.push(EventId::derive(journal.lease.execution.named_step("finish"), 0));
    lab.semel.finish(&journal.lease.ask, tx, &reply(201)).await.unwrap();
    let (mut ids, mut after) = (Vec::new(), Cursor::START);
    let limit = PageLimit { events: 100, bytes: 1 << 20 };
    while let Some(page) = lab.store().page(after, &[Lane::of("one")], limit).await.unwrap() {
        after = page.upto;
        ids.extend(page.events.iter().map(|written| written.id));
    }
    assert_eq!(ids, expected);
}

/// I1, I2: the last step ends the flow with its reply.
pub async fn a_flow_ends_with_its_reply_and_its_last_effect<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let journal = lab.begins_under(&key).await;
    lab.finishes(&journal.lease, 201, "effect").await.unwrap();
    assert_eq!(lab.harness.count("effect").await, 1);
    let record = lab.shows(&journal.lease).await.record;
    assert_eq!((record.state, record.status, record.unwinding), (FlowState::Completed, Some(201), false));
    assert!(!lab.store().renew(&journal.lease, journal.lease.lease_for).await.unwrap(), "that is not a loss");
    lab.abandons().await;
    assert_eq!(lab.takes(FLOW).await, Vec::new());
    let again = lab.finishes(&journal.lease, 200, "effect").await;
    assert!(matches!(again, Err(Error::Fenced)), "{again:?}");
    assert_eq!(lab.harness.count("effect").await, 1);
}

/// What was undone ends, too: its reply is stored, and no effect of the last step is.
pub async fn a_flow_that_failed_ends_with_its_reply<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let journal = lab.begins_under(&key).await;
    let mut tx = lab.store().begin_step(&journal.lease, "finish").await.unwrap();
    H::insert(&mut tx, "effect").await.unwrap();
    let execution = journal.lease.execution;
    let stored = Stored { execution, status: 422, headers: "a: b\r\n".into(), body: "no".into(), sealed_by: None };
    tx.complete(&Completion { stored, keep_effect: false, failed: true, retain: DAY }).await.unwrap();
    assert_eq!(lab.harness.count("effect").await, 0);
    let record = lab.shows(&journal.lease).await.record;
    assert_eq!((record.state, record.status), (FlowState::Failed, Some(422)));
    let key = lab.store().show_key(&lab.scope, &key).await.unwrap().unwrap();
    assert_eq!((key.state, key.status), (KeyState::Failed, Some(422)));
}

fn with_event<T: Tx>(mut tx: T) -> T {
    tx.emit(Event::new("orders", "one", "test.happened", "undone").unwrap());
    tx
}

/// Everything that a worker can write is refused.
async fn refuses_all<H: Harness>(lab: &Lab<H>, late: &Lease) {
    let (store, hour) = (lab.store(), Duration::from_secs(3600));
    let failed = Settled { state: State::Failed, ..done("charge", Kind::Call, b"{}") };
    let refusals = [
        ("commit", lab.commits(late, "late", "late").await),
        ("finish", lab.finishes(late, 200, "late").await.map(drop)),
        ("settle a call", store.settle_step(late, &failed).await),
        ("settle a pause", store.settle_step(late, &done("late", Kind::Sleep, b"5")).await),
        ("count the first attempt", lab.counts(late, "late", 1).await),
        ("count another attempt", store.count_attempt(late, &attempt("charge", 2)).await),
        ("end an attempt", store.end_attempt(late, "charge", 1, Fault::Terminal, "late").await),
        ("park", store.park_flow(late, hour, Some("late")).await),
        ("hold", store.hold_flow(late, "charge", "late").await),
        ("unwind", store.unwind_flow(late, &kept(b"{}")).await),
        ("read", store.read_flow(late).await.map(drop)),
    ];
    for (what, refused) in refusals {
        assert!(matches!(refused, Err(Error::Fenced)), "{what}: {refused:?}");
    }
    assert_eq!(lab.lists(FLOW).await.len(), 1);
}
