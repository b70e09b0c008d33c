//! Flows that wait: for a time, for a person, or to be undone.

use std::time::Duration;

use semel::flow::{FlowState, FlowStore, State};
use semel::operator::KeyState;
use semel::{Claim, Error, Key, Store};

use super::harness::Harness;
use super::lab::{FLOW, Lab, entry, kept, start};

/// A worker that lets go says when the next one may come.
pub async fn a_parked_flow_is_taken_when_its_pause_is_over_and_not_before<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    lab.store().park_flow(&journal.lease, Duration::from_secs(600), None).await.unwrap();
    let record = lab.shows(&journal.lease).await.record;
    assert_eq!((record.state, record.failures, &record.cause), (FlowState::Paused, 0, &None));
    lab.harness.age(Duration::from_secs(590)).await;
    assert_eq!(lab.takes(FLOW).await, Vec::new());
    lab.harness.age(Duration::from_secs(11)).await;
    assert_eq!(lab.shows(&journal.lease).await.record.state, FlowState::Due);
    let taken = lab.takes_one(FLOW).await;
    assert_eq!((taken.lease.execution, taken.lease.epoch), (journal.lease.execution, 2));
    assert!(matches!(lab.commits(&journal.lease, "reserve", "effect").await, Err(Error::Fenced)));
    lab.commits(&taken.lease, "reserve", "effect").await.unwrap();
}

/// A worker that stops gives its flows back at once.
pub async fn a_flow_that_is_parked_without_a_pause_is_taken_at_once<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let journal = lab.begins_under(&key).await;
    lab.store().park_flow(&journal.lease, Duration::ZERO, None).await.unwrap();
    assert_eq!(lab.resumes(&key).await.lease.epoch, 2);
}

/// Failures in a row are counted, and a run that got on ends the row.
pub async fn failures_in_a_row_are_counted<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let mut journal = lab.begins().await;
    for failures in 1..=3 {
        lab.store().park_flow(&journal.lease, Duration::ZERO, Some("the stock is away")).await.unwrap();
        let record = lab.shows(&journal.lease).await.record;
        assert_eq!((record.failures, record.cause.as_deref()), (failures, Some("the stock is away")));
        journal = lab.takes_one(FLOW).await;
        assert_eq!(journal.failures, failures);
    }
    lab.store().park_flow(&journal.lease, Duration::ZERO, None).await.unwrap();
    assert_eq!(lab.takes_one(FLOW).await.failures, 0);
}

/// Where nobody can know, nothing runs until somebody has found out.
pub async fn a_held_flow_waits_for_a_person<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let journal = lab.begins_under(&key).await;
    lab.holds(&journal.lease, "charge").await;
    let shown = lab.shows(&journal.lease).await;
    assert_eq!(shown.record.state, FlowState::Held);
    assert!(shown.record.cause.as_deref().unwrap_or_default().contains("nobody knows"), "{shown:?}");
    assert_eq!(shown.steps[0].entry.state, State::Unknown);
    assert!(shown.steps[0].is_open());
    let record = lab.store().show_key(&lab.scope, &key).await.unwrap().unwrap();
    assert_eq!(record.state, KeyState::Unknown);
    let pressure = lab.store().flow_pressure().await.unwrap();
    assert_eq!((pressure.unknown, pressure.held), (1, 1));
    // It is nobody's any more, also not its last worker's.
    assert!(matches!(lab.commits(&journal.lease, "reserve", "effect").await, Err(Error::Fenced)));
    lab.harness.age(Duration::from_secs(24 * 60 * 60)).await;
    assert_eq!(lab.takes(FLOW).await, Vec::new());
    assert!(matches!(lab.asks(&key, &start(FLOW)).await, Claim::Unknown));
    assert_eq!(lab.harness.count("effect").await, 0);
}

/// Undoing has no way back, and the first reason is the one that is answered.
pub async fn a_flow_that_is_being_undone_stays_so<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    lab.commits(&journal.lease, "reserve", "effect").await.unwrap();
    lab.store().unwind_flow(&journal.lease, &kept(b"{\"code\":\"first\"}")).await.unwrap();
    lab.store().unwind_flow(&journal.lease, &kept(b"{\"code\":\"second\"}")).await.unwrap();
    assert_eq!(lab.reads(&journal.lease).await.unwinding, Some(kept(b"{\"code\":\"first\"}")));
    assert!(lab.shows(&journal.lease).await.record.unwinding);
    lab.abandons().await;
    let taken = lab.takes_one(FLOW).await;
    assert_eq!(taken.unwinding, Some(kept(b"{\"code\":\"first\"}")));
    assert_eq!(entry(&taken, "reserve").state, State::Done);
}

/// What waits for a worker is counted by name, whoever knows the name.
pub async fn what_waits_is_counted_by_name<H: Harness>() {
    let lab = Lab::<H>::open().await;
    assert_eq!(lab.store().flow_pressure().await.unwrap(), semel::flow::Pressure::default());
    for flow in [FLOW, FLOW, "nobody-knows-this"] {
        lab.begins_as(&Key::random(), &start(flow)).await;
        lab.harness.age(Duration::from_secs(10)).await;
    }
    lab.abandons().await;
    let mut due = lab.store().flow_pressure().await.unwrap().due;
    due.sort_by(|one, other| one.flow.cmp(&other.flow));
    let counts: Vec<(&str, u64)> = due.iter().map(|due| (due.flow.as_str(), due.count)).collect();
    assert_eq!(counts, [("nobody-knows-this", 1), (FLOW, 2)]);
    // The first lease ended 31 seconds ago, the last one 11 seconds ago.
    assert!(due[1].oldest >= Duration::from_secs(31) && due[0].oldest >= Duration::from_secs(11), "{due:?}");
    assert!(due[0].oldest < due[1].oldest, "{due:?}");
    lab.takes(FLOW).await;
    let due = lab.store().flow_pressure().await.unwrap().due;
    assert_eq!(due.iter().map(|due| due.flow.as_str()).collect::<Vec<_>>(), ["nobody-knows-this"]);
}
