//! A database that was restored is another one.

use semel::outbox::{HeldState, LaneState};
use semel::sink::Lane;
use semel::{Error, EventId, Outbox};

use super::harness::Harness;
use super::lab::{LONG, Lab, ROOMY, all_lanes, audit, event, keys_of, number, past, read};
use super::numbering::Numbering;

/// Positions count in one history of the database; in another they would lose or double events.
pub async fn a_relay_refuses_the_positions_of_another_incarnation<H: Harness>() {
    let (lab, _) = restored::<H>().await;
    let status = lab.outbox().outbox_status().await.unwrap();
    let refused = lab.outbox().join_relays("relay", LONG).await;
    let Err(Error::Incarnation { positions_of, now }) = &refused else { panic!("{refused:?}") };
    assert_ne!(positions_of, now);
    assert_eq!((status.positions_of.as_ref(), &status.incarnation), (Some(positions_of), now));
    assert!(refused.unwrap_err().to_string().contains("semel outbox rebase"));
}

/// I4: what was not published is published in the new history, by the ids it had, before what came after.
pub async fn a_rebase_keeps_what_is_not_published<H: Harness>() {
    let (lab, ids) = restored::<H>().await;
    let outbox = lab.outbox();
    let key = &keys_of(LANE, 1)[0];
    let since = lab.emit([event("topic", key, 5)]).await;
    let before = outbox.outbox_status().await.unwrap();

    let would = outbox.rebase(&audit("just looking"), true).await.unwrap();
    assert_eq!((&would.from, &would.to), (&before.positions_of, &before.incarnation));
    assert!(matches!(outbox.join_relays("relay", LONG).await, Err(Error::Incarnation { .. })), "nothing was changed");
    let done = outbox.rebase(&audit("restored"), false).await.unwrap();
    assert_eq!(done, would);
    assert_eq!((lab.harness.audits("just looking").await, lab.harness.audits("restored").await), (0, 1));

    let (_, lanes) = lab.relay("relay").await;
    assert!(lanes.iter().all(|state| state.counts.is_empty()), "sequences count from one again");
    let numbering = Numbering::from_states(lanes);
    let written = read(outbox, numbering.after(), &all_lanes(), ROOMY).await;
    let of_key: Vec<_> = written.iter().filter(|event| event.event.ordering_key == *key).collect();
    assert_eq!(of_key.iter().map(|event| number(event)).collect::<Vec<_>>(), [3, 4, 5]);
    let expected: Vec<EventId> = ids[2..4].iter().chain(&since).copied().collect();
    assert_eq!(of_key.iter().map(|event| event.id).collect::<Vec<_>>(), expected);
    // The held one is still held, or comes again.
    let held = outbox.held_events(Lane::of("held"), "held", 10).await.unwrap();
    let kept = held.iter().map(|held| held.written.id).chain(written.iter().map(|event| event.id));
    assert_eq!(kept.filter(|id| *id == ids[4]).count(), 1, "a held event is kept, once");
    let ours: u64 = written.iter().filter(|event| ids.contains(&event.id)).count() as u64;
    assert!((ours..=written.len() as u64).contains(&done.events), "as many as were not covered: {done:?}");
    assert_eq!(outbox.backlog().await.unwrap().events, written.len() as u64);
}

/// Two histories at once cannot be told apart by anybody.
pub async fn a_rebase_is_refused_while_a_lease_runs<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    lab.emit([event("topic", "key", 1)]).await;
    let (relay, lanes) = lab.relay("relay").await;
    let states: Vec<LaneState> = lanes.iter().map(|state| past(state, &[])).collect();
    outbox.checkpoint(relay, &states).await.unwrap();
    lab.harness.reincarnate().await;
    let refused = outbox.rebase(&audit("too early"), false).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(lab.harness.audits("too early").await, 0);
    outbox.leave_relays(relay).await.unwrap();
    assert_eq!(outbox.rebase(&audit("in time"), false).await.unwrap().events, 1);
    let (_, lanes) = lab.relay("next").await;
    let numbering = Numbering::from_states(lanes);
    assert_eq!(read(outbox, numbering.after(), &all_lanes(), ROOMY).await.len(), 1);
}

/// I4: also if no relay ever was there to say how far it came.
pub async fn events_that_no_relay_saw_survive_another_incarnation<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let mut ids = lab.emit((1..=3).map(|n| event("topic", "key", n))).await;
    lab.harness.reincarnate().await;
    ids.extend(lab.emit([event("topic", "key", 4)]).await);
    match outbox.join_relays("relay", LONG).await {
        Ok(joined) => outbox.leave_relays(joined.id).await.unwrap(),
        Err(Error::Incarnation { .. }) => {
            outbox.rebase(&audit("restored"), false).await.unwrap();
        }
        Err(error) => panic!("{error:?}"),
    }
    let (_, lanes) = lab.relay("relay").await;
    let numbering = Numbering::from_states(lanes);
    let written = read(outbox, numbering.after(), &all_lanes(), ROOMY).await;
    assert_eq!(written.iter().map(|event| event.id).collect::<Vec<_>>(), ids);
}

const LANE: Lane = Lane(30);

/// Four events of one key, of which two are published, and a held one of another; then a restore.
async fn restored<H: Harness>() -> (Lab<H>, Vec<EventId>) {
    let lab = Lab::<H>::open().await;
    let key = &keys_of(LANE, 1)[0];
    let mut ids = Vec::new();
    for n in 1..=4 {
        ids.extend(lab.emit([event("topic", key, n)]).await);
    }
    let held = lab.emit([event("topic", "held", 1)]).await;
    let (relay, lanes) = lab.relay("relay").await;
    let published = lab.written(&ids[..2]).await;
    let of = |lane: Lane| &lanes[usize::from(lane.0)];
    lab.outbox().checkpoint(relay, &[past(of(LANE), &published)]).await.unwrap();
    let written = lab.written(&held).await;
    lab.hold(relay, &past(of(Lane::of("held")), &written), &written).await;
    assert_eq!(lab.outbox().list_held(Some(HeldState::Retrying), 10).await.unwrap().len(), 1);
    lab.outbox().leave_relays(relay).await.unwrap();
    ids.extend(held);
    lab.harness.reincarnate().await;
    (lab, ids)
}
