//! What operators see of flows, and what they may change.

use std::time::Duration;

use semel::flow::{Change, FlowFilter, FlowRecord, FlowState, FlowStore, Journal, Kind, Resolution, Seen, State};
use semel::intent::Fault;
use semel::operator::Audit;
use semel::{Ask, Claim, Error, Execution, Key, Lease, Scope, Store};

use super::harness::Harness;
use super::lab::{FLOW, INPUT, Lab, audit, done, entry, holding_terms, kept, start, steps, terms};

/// The newest come first, and filters filter.
pub async fn flows_are_listed_the_newest_first_and_by_what_is_asked<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let mut begun: Vec<Execution> = Vec::new();
    for _ in 0..3 {
        begun.push(lab.begins().await.lease.execution);
        lab.harness.age(Duration::from_secs(1)).await;
    }
    let refund = lab.begins_as(&Key::random(), &start("refund")).await;
    lab.finishes(&refund.lease, 201, "effect").await.unwrap();
    let ask = Ask::new(&Scope::new("other", "POST /orders").unwrap(), &Key::random(), &lab.fingerprint);
    let Claim::Fresh(others) = lab.store().begin_flow(&ask, &terms("one"), &start(FLOW)).await.unwrap() else {
        panic!("the key is new");
    };
    let all = FlowFilter { limit: 100, ..FlowFilter::default() };
    let list = async |filter: FlowFilter| {
        let records = lab.store().list_flows(&filter).await.unwrap();
        records.iter().map(|record| record.execution).collect::<Vec<_>>()
    };
    assert_eq!(list(all.clone()).await.len(), 5);
    assert_eq!(list(FlowFilter { limit: 2, ..all.clone() }).await.len(), 2);
    let mine = FlowFilter { flow: Some(FLOW.to_owned()), tenant: Some("tenant".to_owned()), ..all.clone() };
    assert_eq!(list(mine.clone()).await, begun.iter().rev().copied().collect::<Vec<_>>());
    assert_eq!(list(FlowFilter { tenant: Some("other".to_owned()), ..all.clone() }).await, [others.lease.execution]);
    let completed = FlowFilter { state: Some(FlowState::Completed), ..all.clone() };
    assert_eq!(list(completed).await, [refund.lease.execution]);
    assert_eq!(list(FlowFilter { state: Some(FlowState::Due), ..mine.clone() }).await, Vec::<Execution>::new());
    lab.abandons().await;
    assert_eq!(list(FlowFilter { state: Some(FlowState::Due), ..mine.clone() }).await.len(), 3);
    assert_eq!(list(FlowFilter { state: Some(FlowState::Running), ..mine }).await, Vec::<Execution>::new());
    assert_eq!(list(FlowFilter { flow: Some("nothing".to_owned()), ..all }).await, Vec::<Execution>::new());
}

/// Everything that is known, save for what belongs to the tenant.
pub async fn a_flow_is_shown_with_its_steps_and_without_their_bytes<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let journal = lab.begins_under(&key).await;
    lab.commits(&journal.lease, "reserve", "effect").await.unwrap();
    lab.counts(&journal.lease, "charge", 1).await.unwrap();
    lab.store().end_attempt(&journal.lease, "charge", 1, Fault::Unknown, "it was cut").await.unwrap();
    lab.store().hold_flow(&journal.lease, "charge", "nobody knows").await.unwrap();
    let shown = lab.shows(&journal.lease).await;
    let record = &shown.record;
    assert_eq!((record.execution, record.flow.as_str()), (journal.lease.execution, FLOW));
    assert_eq!((&record.scope, &record.key, record.epoch), (&lab.scope, &key, 1));
    assert_eq!((record.state, record.status, record.unwinding), (FlowState::Held, None, false));
    assert_eq!((record.holder.as_deref(), record.last_step.as_deref()), (Some("one"), Some("charge")));
    assert!(record.begun_at_ms > 0);
    assert_eq!(shown.input_bytes, INPUT.len() as u64);
    assert_eq!((shown.steps.len(), &shown.changes), (2, &Vec::new()));
    let (reserve, charge) = (&shown.steps[0], &shown.steps[1]);
    assert_eq!((reserve.entry.kind, reserve.entry.state, reserve.result_bytes), (Kind::Commit, State::Done, 1));
    assert!(reserve.entry.result.as_ref().is_none_or(|result| result.bytes.is_empty()), "{reserve:?}");
    assert!(reserve.recorded_at_ms >= record.begun_at_ms && reserve.settled_at_ms.is_some() && !reserve.is_open());
    assert_eq!((charge.entry.kind, charge.entry.state, charge.settled_at_ms), (Kind::Call, State::Unknown, None));
    let intent = charge.entry.intent.as_ref().unwrap();
    assert_eq!((intent.provider.as_str(), intent.key.as_str()), ("psp", "derived"));
    assert_eq!((&intent.attempts, intent.cause.as_deref()), (&vec![Some(Fault::Unknown)], Some("it was cut")));
    assert!(charge.is_open());
    assert_eq!(lab.lists(FLOW).await, std::slice::from_ref(record));
    assert_eq!(lab.store().show_flow(Execution::mint()).await.unwrap(), None);
}

/// An operator need not wait for a pause.
pub async fn a_retried_flow_goes_on_at_once<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    lab.store().park_flow(&journal.lease, Duration::from_secs(600), Some("the stock is away")).await.unwrap();
    let before = made(lab.store().retry_flow(journal.lease.execution, &audit("it is back"), false).await);
    assert_eq!((before.state, before.failures), (FlowState::Paused, 1));
    assert_eq!(lab.harness.audits("it is back").await, 1);
    let taken = lab.takes_one(FLOW).await;
    assert_eq!((taken.lease.execution, taken.failures), (journal.lease.execution, 0));
    lab.abandons().await;
    let before = made(lab.store().retry_flow(journal.lease.execution, &audit("again"), false).await);
    assert_eq!(before.state, FlowState::Due);
    let shown = lab.shows(&journal.lease).await;
    let changes: Vec<(&str, &str, &str)> = shown
        .changes
        .iter()
        .map(|change| (change.action.as_str(), change.actor.as_str(), change.reason.as_str()))
        .collect();
    assert_eq!(changes, [("flow_retried", "tester", "it is back"), ("flow_retried", "tester", "again")]);
}

/// A flow that is held for its policy and for no step can be let go on; its old worker stays out.
pub async fn a_flow_that_is_held_by_its_policy_can_be_retried<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let late = lab.begins().await;
    lab.abandons().await;
    assert_eq!(lab.store().take_flows(FLOW, &holding_terms(), 10).await.unwrap(), Vec::new());
    let pressure = lab.store().flow_pressure().await.unwrap();
    assert_eq!((pressure.unknown, pressure.held), (0, 1), "somebody has to see it");
    let before = made(lab.store().retry_flow(late.lease.execution, &audit("it did nothing"), false).await);
    assert_eq!((before.state, lab.store().flow_pressure().await.unwrap().held), (FlowState::Held, 0));
    assert_eq!(lab.shows(&late.lease).await.record.state, FlowState::Due);
    assert!(matches!(lab.commits(&late.lease, "reserve", "late").await, Err(Error::Fenced)));
    let taken = lab.takes_one(FLOW).await;
    assert!(taken.lease.epoch > late.lease.epoch);
    lab.finishes(&taken.lease, 201, "effect").await.unwrap();
}

/// I7: whoever was taken for gone stays out once an operator has let the flow go on, so that what the operator allowed
/// cannot be used twice.
pub async fn the_late_worker_of_a_flow_that_is_let_go_on_is_fenced<H: Harness>() {
    for cancels in [false, true] {
        let lab = Lab::<H>::open().await;
        let late = lab.begins().await;
        lab.abandons().await;
        let (run, why) = (late.lease.execution, audit("its worker is gone"));
        let before = made(match cancels {
            true => lab.store().cancel_flow(run, &why, false).await,
            false => lab.store().retry_flow(run, &why, false).await,
        });
        assert_eq!(before.state, FlowState::Due);
        assert!(matches!(lab.commits(&late.lease, "reserve", "late").await, Err(Error::Fenced)));
        assert!(matches!(lab.counts(&late.lease, "charge", 1).await, Err(Error::Fenced)));
        assert!(matches!(lab.store().renew(&late.lease, late.lease.lease_for).await, Err(Error::Fenced)));
        let taken = lab.store().take_flows(FLOW, &holding_terms(), 10).await.unwrap();
        assert_eq!(taken.iter().map(|journal| journal.lease.execution).collect::<Vec<_>>(), [run]);
        if cancels {
            lab.store().unwind_flow(&taken[0].lease, &kept(b"{}")).await.unwrap();
        }
        lab.commits(&taken[0].lease, "reserve", "effect").await.unwrap();
        lab.abandons().await;
        assert_eq!(lab.store().take_flows(FLOW, &holding_terms(), 10).await.unwrap(), Vec::new());
        assert_eq!(lab.shows(&late.lease).await.record.state, FlowState::Held, "it was left again");
        assert_eq!((lab.harness.count("late").await, lab.harness.count("effect").await), (0, 1));
    }
}

/// One that waits keeps its place among those who do.
pub async fn a_retried_flow_does_not_queue_anew<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let mut begun: Vec<Execution> = Vec::new();
    for _ in 0..2 {
        begun.push(lab.begins().await.lease.execution);
        lab.harness.age(Duration::from_secs(1)).await;
    }
    lab.abandons().await;
    made(lab.store().retry_flow(begun[0], &audit("now"), false).await);
    let taken = lab.store().take_flows(FLOW, &terms("two"), 1).await.unwrap();
    assert_eq!(taken.iter().map(|journal| journal.lease.execution).collect::<Vec<_>>(), begun[..1]);
}

/// What runs, has ended or waits for somebody to find out is not retried.
pub async fn a_retry_is_refused_where_it_would_be_blind<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (running, held, finished) = (lab.begins().await, lab.begins().await, lab.begins().await);
    lab.holds(&held.lease, "charge").await;
    lab.finishes(&finished.lease, 201, "effect").await.unwrap();
    let cases =
        [(&running, FlowState::Running, ""), (&held, FlowState::Held, "charge"), (&finished, FlowState::Completed, "")];
    for (journal, expected, names) in cases {
        let change = lab.store().retry_flow(journal.lease.execution, &audit("in haste"), false).await.unwrap();
        let Change::Refused(state, why) = change else { panic!("{expected:?} was retried: {change:?}") };
        assert_eq!(state, expected);
        assert!(!why.is_empty() && why.contains(names), "{why}");
        assert_eq!(lab.shows(&journal.lease).await.record.state, expected);
    }
    assert_eq!(lab.harness.audits("in haste").await, 0);
}

/// It happened: the result is the one that the person found.
pub async fn a_call_that_is_resolved_as_happened_is_done<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let late = lab.begins().await;
    lab.holds(&late.lease, "charge").await;
    let found = Resolution::Happened(b"{\"id\":\"ch_1\"}".to_vec().into());
    let taken = resolves(&lab, &late.lease, &found).await;
    let charge = entry(&taken, "charge");
    assert_eq!((charge.state, &charge.result), (State::Done, &Some(kept(b"{\"id\":\"ch_1\"}"))));
    lab.finishes(&taken.lease, 201, "effect").await.unwrap();
}

/// It did not happen: it is sent anew, under the same key, in a window that opens anew.
pub async fn a_call_that_is_resolved_as_not_happened_is_sent_anew_under_its_key<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let late = lab.begins().await;
    lab.counts(&late.lease, "charge", 1).await.unwrap();
    lab.store().end_attempt(&late.lease, "charge", 1, Fault::Unknown, "it was cut").await.unwrap();
    lab.counts(&late.lease, "charge", 2).await.unwrap();
    lab.store().hold_flow(&late.lease, "charge", "nobody knows").await.unwrap();
    lab.harness.age(Duration::from_secs(7200)).await;
    let taken = resolves(&lab, &late.lease, &Resolution::DidNotHappen).await;
    let charge = entry(&taken, "charge");
    let intent = charge.intent.as_ref().unwrap();
    assert_eq!((charge.state, &charge.result), (State::Pending, &None));
    assert_eq!((intent.key.as_str(), intent.attempts.len()), ("derived", 0));
    lab.counts(&taken.lease, "charge", 1).await.unwrap();
    let recorded = lab.reads(&taken.lease).await;
    let intent = entry(&recorded, "charge").intent.as_ref().unwrap();
    assert_eq!((intent.key.as_str(), intent.attempts.as_slice()), ("derived", &[None][..]));
    assert!(intent.age < Duration::from_secs(3600), "{intent:?}");
    lab.store().settle_step(&taken.lease, &done("charge", Kind::Call, b"{}")).await.unwrap();
    lab.finishes(&taken.lease, 201, "effect").await.unwrap();
}

/// It did not happen and is not to: the step has failed, and the result says why.
pub async fn a_call_that_is_resolved_as_failed_has_failed<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let late = lab.begins().await;
    lab.holds(&late.lease, "charge").await;
    let taken = resolves(&lab, &late.lease, &Resolution::Failed("the card \"was\" blocked".to_owned())).await;
    let charge = entry(&taken, "charge");
    assert_eq!(charge.state, State::Failed);
    let result = charge.result.as_ref().unwrap();
    assert_eq!(result.sealed_by, None);
    let failure: serde_json::Value = serde_json::from_slice(&result.bytes).unwrap();
    assert_eq!(failure["step"], "charge");
    assert_eq!(failure["code"], "resolved");
    assert_eq!(failure["reason"], "the card \"was\" blocked");
}

/// A flow that is held for two calls goes on when both are resolved.
pub async fn a_flow_goes_on_when_its_last_doubt_is_resolved<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    lab.holds(&journal.lease, "charge").await;
    made(lab.store().resolve_flow(journal.lease.execution, "charge", &happened(), &audit("one"), false).await);
    let second = lab.takes_one(FLOW).await;
    lab.holds(&second.lease, "mail").await;
    assert_eq!(lab.store().flow_pressure().await.unwrap().unknown, 1);
    made(lab.store().resolve_flow(journal.lease.execution, "mail", &happened(), &audit("two"), false).await);
    let third = lab.takes_one(FLOW).await;
    assert_eq!(lab.store().flow_pressure().await.unwrap().unknown, 0);
    lab.finishes(&third.lease, 201, "effect").await.unwrap();
}

/// Only what is in doubt can be resolved.
pub async fn a_resolution_of_what_is_not_in_doubt_is_refused<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (running, held, finished) = (lab.begins().await, lab.begins().await, lab.begins().await);
    lab.counts(&running.lease, "charge", 1).await.unwrap();
    lab.commits(&held.lease, "reserve", "effect").await.unwrap();
    lab.holds(&held.lease, "charge").await;
    lab.finishes(&finished.lease, 201, "effect").await.unwrap();
    let cases = [
        (&running, "charge", FlowState::Running),
        (&held, "reserve", FlowState::Held),
        (&held, "nothing", FlowState::Held),
        (&finished, "charge", FlowState::Completed),
    ];
    for (journal, step, expected) in cases {
        let execution = journal.lease.execution;
        let change = lab.store().resolve_flow(execution, step, &happened(), &audit("guessed"), false).await.unwrap();
        assert!(matches!(&change, Change::Refused(state, _) if *state == expected), "{step}: {change:?}");
        assert_eq!(lab.shows(&journal.lease).await.record.state, expected);
    }
    assert_eq!(lab.harness.audits("guessed").await, 0);
}

/// What an operator decides is about the flow as they saw it. One that has gone on since may have called again.
pub async fn a_change_is_for_the_flow_as_it_was_seen<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (held, paused) = (lab.begins().await, lab.begins().await);
    lab.holds(&held.lease, "charge").await;
    lab.store().park_flow(&paused.lease, Duration::from_secs(600), None).await.unwrap();
    let seen = |journal: &Journal, epoch| Seen { execution: journal.lease.execution, epoch: Some(epoch) };
    let (late, store) = (audit("seen too early"), lab.store());
    for dry_run in [true, false] {
        for (change, state) in [
            (store.resolve_flow(seen(&held, 2), "charge", &happened(), &late, dry_run).await, FlowState::Held),
            (store.retry_flow(seen(&paused, 2), &late, dry_run).await, FlowState::Paused),
            (store.cancel_flow(seen(&paused, 2), &late, dry_run).await, FlowState::Paused),
        ] {
            let change = change.unwrap();
            let Change::Refused(standing, why) = &change else { panic!("it was not seen like this: {change:?}") };
            assert!(*standing == state && why.contains("its epoch is 1, not 2"), "{change:?}");
        }
    }
    assert_eq!(lab.harness.audits("seen too early").await, 0);
    assert_eq!(lab.shows(&held.lease).await.record.state, FlowState::Held);
    assert_eq!(lab.shows(&paused.lease).await.record.state, FlowState::Paused);
    made(store.resolve_flow(seen(&held, 1), "charge", &happened(), &audit("just seen"), false).await);
    made(store.retry_flow(seen(&paused, 1), &audit("just seen"), false).await);
    made(store.cancel_flow(seen(&paused, 2), &audit("just seen"), false).await);
    assert_eq!(lab.harness.audits("just seen").await, 3);
}

/// A flow is asked to be undone; whoever works on it, or takes it next, does that.
pub async fn a_cancelled_flow_is_told_to_be_undone<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (running, paused) = (lab.begins().await, lab.begins().await);
    lab.store().park_flow(&paused.lease, Duration::from_secs(600), None).await.unwrap();
    for journal in [&running, &paused] {
        made(lab.store().cancel_flow(journal.lease.execution, &audit("not wanted"), false).await);
    }
    assert_eq!(lab.harness.audits("not wanted").await, 2);
    assert!(lab.reads(&running.lease).await.cancelled, "its worker has its lease and sees it");
    let taken = lab.takes_one(FLOW).await;
    assert_eq!((taken.lease.execution, taken.cancelled), (paused.lease.execution, true));
    assert_eq!(lab.shows(&paused.lease).await.changes[0].action, "flow_cancelled");
    lab.abandons().await;
    let both = lab.takes(FLOW).await;
    assert!(both.len() == 2 && both.iter().all(|journal| journal.cancelled), "{both:?}");
}

/// Once a cancellation has returned, nothing new of the flow begins. What became of a call is recorded all the same,
/// and so is what undoes the flow, once it is being undone.
pub async fn nothing_new_of_a_cancelled_flow_begins<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (store, lease) = (lab.store(), lab.begins().await.lease);
    lab.commits(&lease, "reserve", "kept").await.unwrap();
    lab.counts(&lease, "charge", 1).await.unwrap();
    made(store.cancel_flow(lease.execution, &audit("not wanted"), false).await);
    let refusals = [
        ("commit", lab.commits(&lease, "deliver", "late").await),
        ("finish", lab.finishes(&lease, 201, "late").await.map(drop)),
        ("refuse at the end", lab.finishes(&lease, 422, "late").await.map(drop)),
        ("count the first attempt", lab.counts(&lease, "mail", 1).await),
        ("count an attempt again", lab.counts(&lease, "charge", 1).await),
        ("count another attempt", lab.counts(&lease, "charge", 2).await),
    ];
    for (what, refused) in refusals {
        assert!(matches!(refused, Err(Error::Cancelled)), "{what}: {refused:?}");
    }
    store.end_attempt(&lease, "charge", 1, Fault::Unknown, "it was cut").await.unwrap();
    store.settle_step(&lease, &done("charge", Kind::Call, b"1")).await.unwrap();
    assert_eq!(steps(&lab.reads(&lease).await), ["reserve", "charge"]);
    assert_eq!((lab.harness.count("kept").await, lab.harness.count("late").await), (1, 0));

    store.unwind_flow(&lease, &kept(b"{}")).await.unwrap();
    lab.counts(&lease, "~undo.charge", 1).await.unwrap();
    lab.commits(&lease, "~undo.reserve", "undone").await.unwrap();
    lab.finishes(&lease, 201, "ended").await.unwrap();
    assert_eq!((lab.harness.count("undone").await, lab.harness.count("ended").await), (1, 1));
}

/// A step that is being committed and a cancellation come one after the other, whichever is first.
pub async fn a_step_and_a_cancellation_come_one_after_the_other<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for round in 0..10 {
        let (lease, label) = (lab.begins().await.lease, format!("round {round}"));
        let not_wanted = audit("not wanted");
        let cancelling = lab.store().cancel_flow(lease.execution, &not_wanted, false);
        let committing = lab.commits(&lease, "reserve", &label);
        let (cancelled, committed) = if round % 2 == 0 {
            tokio::join!(cancelling, committing)
        } else {
            let (committed, cancelled) = tokio::join!(committing, cancelling);
            (cancelled, committed)
        };
        made(cancelled);
        let counted = match committed {
            Ok(()) => 1,
            // Above READ COMMITTED it may have begun too early to see the cancellation, and is told to begin again.
            Err(Error::Cancelled | Error::Conflict(_)) => 0,
            Err(other) => panic!("the step was refused for another reason: {other:?}"),
        };
        assert_eq!(lab.harness.count(&label).await, counted);
        let next = lab.commits(&lease, "deliver", &label).await;
        assert!(matches!(next, Err(Error::Cancelled)), "{next:?}");
        assert_eq!(lab.harness.count(&label).await, counted);
    }
}

/// What has ended cannot be undone, and what is in doubt has to be resolved first.
pub async fn a_cancellation_is_refused_where_it_could_not_be_kept<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (held, finished) = (lab.begins().await, lab.begins().await);
    lab.holds(&held.lease, "charge").await;
    lab.finishes(&finished.lease, 201, "effect").await.unwrap();
    for (journal, expected) in [(&held, FlowState::Held), (&finished, FlowState::Completed)] {
        let change = lab.store().cancel_flow(journal.lease.execution, &audit("not wanted"), false).await.unwrap();
        assert!(matches!(&change, Change::Refused(state, _) if *state == expected), "{change:?}");
    }
    assert_eq!(lab.harness.audits("not wanted").await, 0);
}

/// I12: what no audit row can say is refused, also by a dry run, and so is a failure that is too long to be told.
pub async fn a_change_that_cannot_be_written_down_is_refused<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let held = lab.begins().await;
    lab.holds(&held.lease, "charge").await;
    let (store, run) = (lab.store(), held.lease.execution);
    let says = |actor: usize, reason: usize| Audit { actor: "a".repeat(actor), reason: "r".repeat(reason) };
    for audit in [says(0, 1), says(256, 1), says(1, 0), says(1, 1025)] {
        for dry_run in [true, false] {
            let refused = [
                store.retry_flow(run, &audit, dry_run).await,
                store.cancel_flow(run, &audit, dry_run).await,
                store.resolve_flow(run, "charge", &happened(), &audit, dry_run).await,
            ];
            assert!(refused.iter().all(|refused| matches!(refused, Err(Error::Settings(_)))), "{refused:?}");
        }
    }
    let (fits, reason) = (says(255, 1024), |bytes: usize| Resolution::Failed("f".repeat(bytes)));
    for dry_run in [true, false] {
        let refused = store.resolve_flow(run, "charge", &reason(1025), &fits, dry_run).await;
        let Err(Error::Settings(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("1025 bytes") && why.contains("1024"), "{why}");
    }
    made(store.resolve_flow(run, "charge", &reason(1024), &fits, false).await);
    assert_eq!(lab.harness.audits(&fits.reason).await, 1);
}

/// A dry run says what would happen.
pub async fn a_dry_run_changes_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (paused, held) = (lab.begins().await, lab.begins().await);
    lab.store().park_flow(&paused.lease, Duration::from_secs(600), Some("away")).await.unwrap();
    lab.holds(&held.lease, "charge").await;
    let (paused_before, held_before) = (lab.shows(&paused.lease).await, lab.shows(&held.lease).await);
    let looking = audit("just looking");
    let retried = made(lab.store().retry_flow(paused.lease.execution, &looking, true).await);
    let cancelled = made(lab.store().cancel_flow(paused.lease.execution, &looking, true).await);
    let resolved = made(lab.store().resolve_flow(held.lease.execution, "charge", &happened(), &looking, true).await);
    assert_eq!((&retried, &cancelled), (&paused_before.record, &paused_before.record));
    assert_eq!(resolved, held_before.record);
    assert_eq!(lab.harness.audits("just looking").await, 0);
    assert_eq!(lab.shows(&paused.lease).await.record, paused_before.record);
    assert_eq!(lab.shows(&held.lease).await.record, held_before.record);
    assert_eq!(lab.takes(FLOW).await, Vec::new());
}

/// A flow that is not there is said not to be.
pub async fn a_change_to_a_flow_that_is_not_there_is_not_found<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (nobody, astray) = (Execution::mint(), audit("astray"));
    assert_eq!(lab.store().retry_flow(nobody, &astray, false).await.unwrap(), Change::NotFound);
    assert_eq!(lab.store().cancel_flow(nobody, &astray, false).await.unwrap(), Change::NotFound);
    let resolved = lab.store().resolve_flow(nobody, "charge", &happened(), &astray, false).await.unwrap();
    assert_eq!(resolved, Change::NotFound);
    assert_eq!(lab.harness.audits("astray").await, 0);
}

/// Resolves the only flow's call, checks who may go on, and takes the flow over.
async fn resolves<H: Harness>(lab: &Lab<H>, late: &Lease, resolution: &Resolution) -> Journal {
    let change = lab.store().resolve_flow(late.execution, "charge", resolution, &audit("called them"), false).await;
    assert_eq!(made(change).state, FlowState::Held);
    assert_eq!(lab.harness.audits("called them").await, 1);
    assert_eq!(lab.shows(late).await.changes[0].action, "flow_resolved");
    assert_eq!(lab.store().flow_pressure().await.unwrap().unknown, 0);
    assert!(matches!(lab.commits(late, "reserve", "late").await, Err(Error::Fenced)), "its last worker stays out");
    let taken = lab.takes_one(FLOW).await;
    assert_eq!((taken.lease.execution, lab.harness.count("late").await), (late.execution, 0));
    taken
}

fn happened() -> Resolution {
    Resolution::Happened(b"{}".to_vec().into())
}

/// The flow as it was before a change that was made.
fn made(change: Result<Change, Error>) -> FlowRecord {
    match change.unwrap() {
        Change::Made(before) => *before,
        other => panic!("the change was not made: {other:?}"),
    }
}
