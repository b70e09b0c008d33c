//! An abandoned flow is taken over by one worker, and by nobody who must not.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use semel::flow::{Change, FlowState, FlowStore, Journal, Kind, State};
use semel::intent::Fault;
use semel::operator::KeyState;
use semel::{Claim, Error, Execution, Key, Store, Tx};
use tokio::sync::Barrier;

use super::harness::Harness;
use super::lab::{FLOW, Lab, audit, done, entry, holding_terms, kept, start, steps, terms};
use super::staging::{MAIL, stages};

/// I7: each flow goes to one of many takers, over two handles that share nothing but the database.
pub async fn flows_that_many_want_are_given_to_one_each<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let mut due: HashMap<Execution, u32> = HashMap::new();
    for _ in 0..crate::counts::rounds(40, 400) {
        due.insert(lab.begins().await.lease.execution, 0);
    }
    lab.abandons().await;
    let (handles, begins) = ([lab.store().clone(), lab.harness.another().await], Arc::new(Barrier::new(32)));
    let mut takers = tokio::task::JoinSet::new();
    for taker in 0..32 {
        let (store, begins) = (handles[taker % 2].clone(), Arc::clone(&begins));
        takers.spawn(async move {
            begins.wait().await;
            let mut mine: Vec<Journal> = Vec::new();
            loop {
                let taken = store.take_flows(FLOW, &terms(&format!("taker {taker}")), 3).await.unwrap();
                assert!(taken.len() <= 3, "no more than was asked for");
                if taken.is_empty() {
                    return mine;
                }
                mine.extend(taken);
            }
        });
    }
    // Whoever found nothing may have passed over what another one had locked.
    let mut all: Vec<Journal> = takers.join_all().await.into_iter().flatten().collect();
    all.extend(lab.takes(FLOW).await);
    for journal in &all {
        assert_eq!(journal.lease.epoch, 2, "{journal:?}");
        *due.get_mut(&journal.lease.execution).unwrap() += 1;
    }
    assert!(due.values().all(|times| *times == 1), "{due:?}");
    for journal in &all {
        lab.commits(&journal.lease, "reserve", "effect").await.unwrap();
    }
    assert_eq!(lab.harness.count("effect").await, all.len() as u64);
}

/// Nobody waits for ever behind those who came later.
pub async fn the_longest_waiting_are_taken_first_and_no_more_than_asked_for<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(lab.begins().await.lease.execution);
        lab.harness.age(Duration::from_secs(5)).await;
    }
    lab.abandons().await;
    assert_eq!(lab.store().take_flows(FLOW, &terms("two"), 0).await.unwrap(), Vec::new());
    let executions = |taken: Vec<Journal>| taken.iter().map(|journal| journal.lease.execution).collect::<Vec<_>>();
    let first = lab.store().take_flows(FLOW, &terms("two"), 2).await.unwrap();
    assert_eq!(executions(first), waiting[..2]);
    let second = lab.store().take_flows(FLOW, &terms("two"), 2).await.unwrap();
    assert_eq!(executions(second), waiting[2..]);
}

/// A worker takes what it has the function for.
pub async fn flows_of_another_name_are_left_alone<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let order = lab.begins().await;
    let refund = lab.begins_as(&Key::random(), &start("refund")).await;
    lab.abandons().await;
    assert_eq!(lab.takes("nothing").await, Vec::new());
    assert_eq!(lab.takes_one("refund").await.lease.execution, refund.lease.execution);
    assert_eq!(lab.takes_one(FLOW).await.lease.execution, order.lease.execution);
}

/// What runs, pauses, is held or has ended is nobody's to take.
pub async fn only_what_is_due_is_taken<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (pausing, held, finished) = (lab.begins().await, lab.begins().await, lab.begins().await);
    lab.store().park_flow(&pausing.lease, Duration::from_secs(300), None).await.unwrap();
    lab.holds(&held.lease, "charge").await;
    lab.finishes(&finished.lease, 201, "effect").await.unwrap();
    lab.abandons().await;
    let _running = lab.begins().await;
    assert_eq!(lab.takes(FLOW).await, Vec::new());
    lab.harness.age(Duration::from_secs(300)).await;
    let taken: Vec<Execution> = lab.takes(FLOW).await.iter().map(|journal| journal.lease.execution).collect();
    assert_eq!(taken.len(), 2, "the pause is over and the lease has ended");
    assert!(taken.contains(&pausing.lease.execution), "{taken:?}");
}

/// A worker that takes over knows all that was recorded.
pub async fn whoever_takes_over_has_all_that_was_recorded<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let first = lab.begins_under(&key).await;
    lab.commits(&first.lease, "reserve", "effect").await.unwrap();
    lab.counts(&first.lease, "charge", 1).await.unwrap();
    lab.store().end_attempt(&first.lease, "charge", 1, Fault::Retryable, "busy").await.unwrap();
    lab.counts(&first.lease, "charge", 2).await.unwrap();
    lab.store().settle_step(&first.lease, &done("cool-down", Kind::Sleep, b"9")).await.unwrap();
    lab.store().unwind_flow(&first.lease, &kept(b"{}")).await.unwrap();
    lab.abandons().await;
    let taken = lab.takes_one(FLOW).await;
    assert_eq!((&taken.lease.ask, taken.lease.execution), (&lab.ask(&key), first.lease.execution));
    assert_eq!((taken.lease.epoch, taken.lease.lease_for), (2, terms("two").lease_for));
    assert_eq!((taken.flow.as_str(), &taken.input, &taken.unwinding), (FLOW, &first.input, &Some(kept(b"{}"))));
    assert_eq!(steps(&taken), ["reserve", "charge", "cool-down"]);
    let charge = entry(&taken, "charge");
    assert_eq!((charge.kind, charge.state, &charge.result), (Kind::Call, State::Pending, &None));
    let intent = charge.intent.as_ref().unwrap();
    assert_eq!((intent.provider.as_str(), intent.key.as_str()), ("psp", "derived"));
    assert_eq!((&intent.attempts, intent.cause.as_deref()), (&vec![Some(Fault::Retryable), None], Some("busy")));
    let asleep = entry(&taken, "cool-down");
    assert_eq!((asleep.kind, asleep.state, &asleep.result), (Kind::Sleep, State::Done, &Some(kept(b"9"))));
    assert!(taken.age >= Duration::from_secs(31), "{:?}", taken.age);
    assert_eq!(lab.shows(&taken.lease).await.record.holder.as_deref(), Some("two"));
}

/// I7: a worker whose lease has ended may still be in its transaction when another one comes. Either the newcomer gets
/// nothing or the worker fails, never both and never neither.
pub async fn a_takeover_beside_an_open_step_lets_one_worker_through<H: Harness>() {
    for by_client in [true, false] {
        let (lab, key) = (Lab::<H>::open().await, Key::random());
        let first = lab.begins_under(&key).await;
        lab.abandons().await;
        let tx = lab.store().begin_step(&first.lease, "reserve").await.unwrap();
        let second = if by_client {
            match lab.asks(&key, &start(FLOW)).await {
                Claim::Resume(journal) => Some(journal),
                Claim::InFlight { .. } => None,
                other => panic!("a takeover got {other:?}"),
            }
        } else {
            lab.takes(FLOW).await.pop()
        };
        let recorded = tx.record(&done("reserve", Kind::Commit, b"1")).await;
        match second {
            Some(second) => {
                assert!(matches!(recorded, Err(Error::Fenced)), "{recorded:?}");
                assert_eq!(steps(&lab.reads(&second.lease).await), Vec::<&str>::new());
                lab.commits(&second.lease, "reserve", "effect").await.unwrap();
            }
            None => {
                recorded.unwrap();
                assert_eq!(steps(&lab.reads(&first.lease).await), ["reserve"]);
            }
        }
    }
}

/// Some flows must not be resumed blindly.
pub async fn an_abandoned_flow_whose_policy_is_to_hold_is_held<H: Harness>() {
    for by_client in [true, false] {
        let (lab, key) = (Lab::<H>::open().await, Key::random());
        let late = lab.begins_under(&key).await;
        lab.abandons().await;
        if by_client {
            let claim = lab.store().begin_flow(&lab.ask(&key), &holding_terms(), &start(FLOW)).await.unwrap();
            assert!(matches!(claim, Claim::Unknown), "{claim:?}");
        } else {
            assert_eq!(lab.store().take_flows(FLOW, &holding_terms(), 10).await.unwrap(), Vec::new());
        }
        let record = lab.shows(&late.lease).await.record;
        assert_eq!(record.state, FlowState::Held);
        assert!(record.cause.as_deref().unwrap_or_default().contains("one"), "it names who left it: {record:?}");
        assert_eq!(lab.takes(FLOW).await, Vec::new(), "whatever the next one's policy is");
        assert!(matches!(lab.commits(&late.lease, "reserve", "effect").await, Err(Error::Fenced)));
        let key = lab.store().show_key(&lab.scope, &key).await.unwrap().unwrap();
        assert_eq!(key.state, KeyState::Unknown);
    }
}

/// Jobs that nobody has begun are known by the name of their holder, so no worker can have it.
pub async fn no_worker_is_called_as_jobs_are<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let (store, staged) = (lab.store(), terms("staged"));
    let refused = store.begin_flow(&lab.ask(&key), &staged, &start(FLOW)).await;
    assert!(matches!(refused, Err(Error::Settings(_))), "{refused:?}");
    stages(&lab, "letter").await;
    let refused = store.take_flows(MAIL, &staged, 10).await;
    assert!(matches!(refused, Err(Error::Settings(_))), "{refused:?}");
    assert_eq!((lab.lists(FLOW).await.len(), lab.takes(MAIL).await.len()), (0, 1));
}

/// The policy is about flows that somebody left in the middle.
pub async fn a_policy_of_holding_lets_what_nobody_left_go_on<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let paused = lab.begins().await;
    lab.store().park_flow(&paused.lease, Duration::from_secs(1), None).await.unwrap();
    let held = lab.begins().await;
    stages(&lab, "letter").await;
    lab.harness.age(Duration::from_secs(2)).await;
    let resumed = lab.store().take_flows(FLOW, &holding_terms(), 10).await.unwrap();
    assert_eq!(resumed.iter().map(|journal| journal.lease.execution).collect::<Vec<_>>(), [paused.lease.execution]);
    assert_eq!(lab.store().take_flows(MAIL, &holding_terms(), 10).await.unwrap().len(), 1, "nobody had begun it");
    // All three were taken once or have run, and are now left in the middle.
    lab.abandons().await;
    assert_eq!(lab.store().take_flows(FLOW, &holding_terms(), 10).await.unwrap(), Vec::new());
    assert_eq!(lab.store().take_flows(MAIL, &holding_terms(), 10).await.unwrap(), Vec::new());
    let state = async |execution: Execution| lab.store().show_flow(execution).await.unwrap().unwrap().record.state;
    assert_eq!(state(paused.lease.execution).await, FlowState::Held);
    assert_eq!(state(held.lease.execution).await, FlowState::Held);
    assert_eq!(lab.lists(MAIL).await[0].state, FlowState::Held);
    // What an operator let go on, goes on: once.
    let change = lab.store().retry_flow(held.lease.execution, &audit("it did nothing"), false).await.unwrap();
    assert!(matches!(change, Change::Made(_)), "{change:?}");
    let resumed = lab.store().take_flows(FLOW, &holding_terms(), 10).await.unwrap();
    assert_eq!(resumed.iter().map(|journal| journal.lease.execution).collect::<Vec<_>>(), [held.lease.execution]);
    lab.abandons().await;
    assert_eq!(lab.store().take_flows(FLOW, &holding_terms(), 10).await.unwrap(), Vec::new());
}

/// A flow that its workers die of is seen, and how often they did.
pub async fn a_lost_worker_counts_as_a_failure<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let mut last = lab.begins().await;
    for failures in 1..=6 {
        lab.abandons().await;
        last = if failures % 2 == 0 { lab.takes_one(FLOW).await } else { lab.resumes(&last.lease.ask.key).await };
        assert_eq!(last.failures, failures);
        let record = lab.shows(&last.lease).await.record;
        assert_eq!((record.state, record.failures), (FlowState::Running, failures));
        assert!(record.cause.is_some_and(|cause| cause.contains("was lost")));
    }
    // One that paused has not lost its worker.
    lab.store().park_flow(&last.lease, Duration::from_secs(1), None).await.unwrap();
    lab.abandons().await;
    assert_eq!(lab.takes_one(FLOW).await.failures, 0);
}

/// What gets on has no failures in a row, also if what it records is only the end of a call or that it is undone.
pub async fn whatever_a_worker_records_ends_the_failures_before_it<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let begun = lab.begins().await;
    lab.counts(&begun.lease, "charge", 1).await.unwrap();
    for way in 0..3 {
        lab.abandons().await;
        let taken = lab.takes_one(FLOW).await;
        assert_eq!(taken.failures, 1);
        match way {
            0 => lab.store().settle_step(&taken.lease, &done("charge", Kind::Call, b"1")).await.unwrap(),
            1 => lab.commits(&taken.lease, "deliver", "effect").await.unwrap(),
            _ => lab.store().unwind_flow(&taken.lease, &kept(b"{}")).await.unwrap(),
        }
        assert_eq!(lab.reads(&taken.lease).await.failures, 0);
    }
}

/// A copy of the database may not know of calls that were made.
pub async fn a_flow_of_a_restored_database_is_told_as_such<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let before = lab.begins().await;
    assert!(!lab.reads(&before.lease).await.restored);
    lab.harness.reincarnate().await;
    let after = lab.begins().await;
    lab.abandons().await;
    for journal in lab.takes(FLOW).await {
        assert_eq!(journal.restored, journal.lease.execution == before.lease.execution, "{journal:?}");
        assert_eq!(lab.reads(&journal.lease).await.restored, journal.restored);
    }
    assert!(!after.restored);
}
