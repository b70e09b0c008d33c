//! What an operator sees and may change.

use semel::outbox::{EventState, HeldKey, HeldState, Holding, Intervention, LANES, LaneState, RelayId, Written};
use semel::sink::Lane;
use semel::{EventId, Execution, Outbox};

use super::harness::Harness;
use super::lab::{LONG, Lab, all_lanes, audit, event, held_key, keys_of, past, until};

const LANE: Lane = Lane(11);

/// A relay that holds two events of each of these keys, parked or not.
async fn holding<H: Harness>(lab: &Lab<H>, states: &[HeldState]) -> (RelayId, LaneState, Vec<Vec<Written>>) {
    let (relay, lanes) = lab.relay("relay").await;
    let (mut state, mut keys) = (lanes[usize::from(LANE.0)].clone(), Vec::new());
    for (key, wanted) in keys_of(LANE, states.len()).iter().zip(states) {
        let written = lab.written(&lab.emit([event("topic", key, 1), event("topic", key, 2)]).await).await;
        state = past(&state, &written);
        lab.hold(relay, &state, &written).await;
        if *wanted == HeldState::Parked {
            let update = Holding::Update(held_key(&written[0], HeldState::Parked));
            lab.outbox().hold(relay, &state, &[update]).await.unwrap();
        }
        keys.push(written);
    }
    (relay, state, keys)
}

async fn state_of<H: Harness>(lab: &Lab<H>, id: EventId) -> EventState {
    lab.outbox().show_event(id).await.unwrap().unwrap().state
}

/// The whole life of an event, by its id.
pub async fn an_operator_sees_what_became_of_an_event<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let key = &keys_of(LANE, 1)[0];
    let ids = lab.emit((1..=3).map(|n| event("topic", key, n))).await;
    let unknown = EventId::derive(Execution::mint(), 0);
    assert_eq!(outbox.show_event(unknown).await.unwrap(), None);
    assert_eq!(state_of(&lab, ids[0]).await, EventState::Created);
    let written = lab.written(&ids).await;
    let (relay, lanes) = lab.relay("relay").await;
    let state = past(&lanes[usize::from(LANE.0)], &written[..1]);
    outbox.checkpoint(relay, std::slice::from_ref(&state)).await.unwrap();
    let record = outbox.show_event(ids[0]).await.unwrap().unwrap();
    assert_eq!((&record.written, record.state, record.held, record.skipped), {
        (&written[0], EventState::Published, None, None)
    });
    assert_eq!(state_of(&lab, ids[1]).await, EventState::Created, "no position covers the rest of the commit");

    let state = past(&state, &written[1..]);
    lab.hold(relay, &state, &written[1..]).await;
    for id in &ids[1..] {
        let record = outbox.show_event(*id).await.unwrap().unwrap();
        assert_eq!(record.state, EventState::Retrying);
        let held = record.held.unwrap();
        assert_eq!((&held.ordering_key, held.error.as_str(), held.attempts), (key, "no such topic", 3));
    }
    let update = Holding::Update(held_key(&written[1], HeldState::Parked));
    outbox.hold(relay, &state, &[update]).await.unwrap();
    assert_eq!(state_of(&lab, ids[2]).await, EventState::Parked);
    assert_eq!(outbox.redrive(Some(key), &audit("mended"), false).await.unwrap(), Intervention::Done(1));
    assert_eq!(state_of(&lab, ids[2]).await, EventState::Redriving);
    let again = Holding::Update(held_key(&written[1], HeldState::Parked));
    outbox.hold(relay, &state, &[again]).await.unwrap();
    assert_eq!(outbox.skip_event(ids[1], &audit("useless"), false).await.unwrap(), Intervention::Done(1));
    let record = outbox.show_event(ids[1]).await.unwrap().unwrap();
    assert_eq!((record.state, record.skipped), (EventState::Skipped, Some(audit("useless"))));
    let release = Holding::Release { ordering_key: key.clone(), upto_seq: written[2].cursor.seq };
    outbox.hold(relay, &state, &[release]).await.unwrap();
    assert_eq!(state_of(&lab, ids[2]).await, EventState::Published);
}

/// How much waits, and since when.
pub async fn the_backlog_counts_what_no_position_covers<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let empty = outbox.backlog().await.unwrap();
    assert_eq!((empty.events, empty.oldest_ms, empty.retrying_keys, empty.parked_keys), (0, None, 0, 0));
    let keys = keys_of(LANE, 2);
    for (n, key) in (0..).zip([keys[0].as_str(), "elsewhere", &keys[1], &keys[1], "elsewhere"]) {
        let before = outbox.backlog().await.unwrap().now_ms;
        until("the clock goes on", async || outbox.backlog().await.unwrap().now_ms > before).await;
        lab.emit([event("topic", key, n)]).await;
    }
    let (unseen, everything) = (outbox.backlog().await.unwrap(), lab.everything().await);
    assert_eq!((unseen.events, unseen.oldest_ms), (5, Some(everything[0].time_ms)), "also before anybody has read it");
    assert!(unseen.now_ms >= everything[4].time_ms);

    let (relay, lanes) = lab.relay("relay").await;
    let state = past(&lanes[usize::from(LANE.0)], &everything[..3]);
    outbox.checkpoint(relay, std::slice::from_ref(&state)).await.unwrap();
    let left = outbox.backlog().await.unwrap();
    assert_eq!((left.events, left.oldest_ms), (3, Some(everything[1].time_ms)));

    let state = past(&state, &everything[3..4]);
    lab.hold(relay, &state, &everything[3..4]).await;
    let held = outbox.backlog().await.unwrap();
    assert_eq!((held.events, held.retrying_keys, held.parked_keys), (2, 1, 0), "what is held is counted by its key");
    let update = Holding::Update(held_key(&everything[3], HeldState::Parked));
    outbox.hold(relay, &state, &[update]).await.unwrap();
    let parked = outbox.backlog().await.unwrap();
    assert_eq!((parked.events, parked.retrying_keys, parked.parked_keys), (2, 0, 1));

    let states: Vec<LaneState> = lanes.iter().filter(|lane| lane.lane != LANE).map(|l| past(l, &everything)).collect();
    outbox.checkpoint(relay, &states).await.unwrap();
    let done = outbox.backlog().await.unwrap();
    assert_eq!((done.events, done.oldest_ms), (0, None));
}

/// Who relays, and in which history.
pub async fn the_status_names_relays_and_incarnation<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let fresh = outbox.outbox_status().await.unwrap();
    assert_eq!((fresh.positions_of, fresh.free_lanes, fresh.relays.len()), (None, u64::from(LANES), 0));
    let joined = outbox.join_relays("one", LONG).await.unwrap();
    assert_eq!(joined.incarnation, fresh.incarnation);
    assert!(!joined.incarnation.is_empty());
    let lanes = outbox.take_lanes(joined.id, 10).await.unwrap();
    let other = lab.join("two").await;
    outbox.checkpoint(joined.id, &lanes).await.unwrap();
    lab.emit([event("topic", "key", 1)]).await;
    let status = outbox.outbox_status().await.unwrap();
    assert_eq!((status.positions_of, status.free_lanes), (Some(joined.incarnation), 54));
    assert_eq!((status.backlog.events, status.incarnation), (1, fresh.incarnation));
    let mut relays: Vec<_> =
        status.relays.iter().map(|relay| (relay.id, relay.name.as_str(), relay.lanes, relay.expired)).collect();
    relays.sort_unstable();
    assert_eq!(relays, [(joined.id.0, "one", 10, false), (other.0, "two", 0, false)]);
    assert!(status.relays.iter().all(|relay| relay.expires_at_ms > status.backlog.now_ms));
}

/// The oldest trouble first.
pub async fn held_keys_are_listed_longest_first<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let (relay, lanes) = lab.relay("relay").await;
    let mut state = lanes[usize::from(LANE.0)].clone();
    let mut names = keys_of(LANE, 3);
    names.reverse();
    for name in &names {
        let before = outbox.backlog().await.unwrap().now_ms;
        until("the clock goes on", async || outbox.backlog().await.unwrap().now_ms > before).await;
        let written = lab.written(&lab.emit([event("topic", name, 1)]).await).await;
        state = past(&state, &written);
        lab.hold(relay, &state, &written).await;
    }
    let listed = outbox.list_held(None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|key| &key.ordering_key).collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
    assert!(listed.iter().all(|key| key.events == 1 && key.lane == LANE));
    assert_eq!(outbox.list_held(None, 2).await.unwrap(), listed[..2]);
    let parked = HeldKey { state: HeldState::Parked, ..listed[1].clone() };
    outbox.hold(relay, &state, &[Holding::Update(parked.clone())]).await.unwrap();
    assert_eq!(outbox.list_held(Some(HeldState::Parked), 10).await.unwrap(), [parked]);
    assert_eq!(outbox.list_held(Some(HeldState::Retrying), 10).await.unwrap().len(), 2);
    assert_eq!(outbox.list_held(Some(HeldState::Redriving), 10).await.unwrap(), []);
}

/// Parked keys go again when somebody says so, and somebody signs for it.
pub async fn a_redrive_takes_parked_keys_and_leaves_an_audit_row<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let (_, _, keys) = holding(&lab, &[HeldState::Parked, HeldState::Retrying, HeldState::Parked]).await;
    let name = |n: usize| keys[n][0].event.ordering_key.as_str();
    assert_eq!(outbox.redrive(Some("unknown"), &audit("no such key"), false).await.unwrap(), Intervention::NotFound);
    assert_eq!(lab.harness.audits("no such key").await, 0);
    assert_eq!(outbox.redrive(Some(name(0)), &audit("just one"), false).await.unwrap(), Intervention::Done(1));
    assert_eq!(lab.harness.audits("just one").await, 1);
    assert_eq!(outbox.redrive(None, &audit("the rest"), false).await.unwrap(), Intervention::Done(1));
    assert_eq!(lab.harness.audits("the rest").await, 1);
    let states = [0, 1, 2].map(|n| keys[n][0].id);
    let expected = [EventState::Redriving, EventState::Retrying, EventState::Redriving];
    for (id, state) in states.into_iter().zip(expected) {
        assert_eq!(state_of(&lab, id).await, state);
    }
    let redriving = outbox.list_held(Some(HeldState::Redriving), 10).await.unwrap();
    assert!(redriving.len() == 2 && redriving.iter().all(|key| key.events == 2), "no event is lost: {redriving:?}");
}

/// One event goes for good, the others of its key stay.
pub async fn a_skip_takes_one_event_out_and_leaves_an_audit_row<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let (_, _, keys) = holding(&lab, &[HeldState::Parked, HeldState::Parked]).await;
    let name = keys[0][0].event.ordering_key.as_str();
    let free = lab.emit([event("topic", "free", 1)]).await[0];
    for unknown in [EventId::derive(Execution::mint(), 0), free] {
        let nothing = outbox.skip_event(unknown, &audit("not held"), false).await.unwrap();
        assert_eq!(nothing, Intervention::NotFound);
    }
    assert_eq!(lab.harness.audits("not held").await, 0);

    assert_eq!(outbox.skip_event(keys[0][0].id, &audit("first"), false).await.unwrap(), Intervention::Done(1));
    let left = outbox.held_events(LANE, name, 10).await.unwrap();
    assert_eq!(left.iter().map(|held| &held.written).collect::<Vec<_>>(), [&keys[0][1]]);
    assert_eq!(left[0].sequence, 2, "what stays keeps its number");
    assert_eq!(outbox.skip_event(keys[0][0].id, &audit("again"), false).await.unwrap(), Intervention::NotFound);
    assert_eq!(outbox.skip_event(keys[0][1].id, &audit("last"), false).await.unwrap(), Intervention::Done(1));
    let held = outbox.held_keys(&all_lanes()).await.unwrap();
    assert!(held.iter().all(|key| key.ordering_key != name) && held.len() == 1, "the key is free: {held:?}");
    assert_eq!(outbox.held_events(LANE, &keys[1][0].event.ordering_key, 10).await.unwrap().len(), 2);
    for (id, reason) in [(keys[0][0].id, "first"), (keys[0][1].id, "last")] {
        let record = outbox.show_event(id).await.unwrap().unwrap();
        assert_eq!((record.state, record.skipped), (EventState::Skipped, Some(audit(reason))));
        assert_eq!(lab.harness.audits(reason).await, 1);
    }
    assert_eq!(lab.harness.audits("again").await, 0);
}

/// A relay may be publishing an event that is tried again: it cannot be skipped before it is parked.
pub async fn an_event_that_is_tried_again_cannot_be_skipped<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let (_, _, keys) = holding(&lab, &[HeldState::Retrying, HeldState::Redriving]).await;
    for key in &keys {
        for dry_run in [true, false] {
            let skipped = outbox.skip_event(key[0].id, &audit("too early"), dry_run).await.unwrap();
            assert_eq!(skipped, Intervention::NotParked);
        }
        assert_eq!(outbox.held_events(LANE, &key[0].event.ordering_key, 10).await.unwrap().len(), 2);
    }
    assert_eq!(lab.harness.audits("too early").await, 0);
}

/// A dry run says what would happen.
pub async fn a_dry_run_changes_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let (_, _, keys) = holding(&lab, &[HeldState::Parked, HeldState::Parked]).await;
    let before = outbox.held_keys(&all_lanes()).await.unwrap();
    let looking = audit("just looking");
    assert_eq!(outbox.redrive(None, &looking, true).await.unwrap(), Intervention::Done(2));
    let one = Some(keys[0][0].event.ordering_key.as_str());
    assert_eq!(outbox.redrive(one, &looking, true).await.unwrap(), Intervention::Done(1));
    assert_eq!(outbox.redrive(Some("unknown"), &looking, true).await.unwrap(), Intervention::NotFound);
    assert_eq!(outbox.skip_event(keys[0][0].id, &looking, true).await.unwrap(), Intervention::Done(1));
    let unknown = EventId::derive(Execution::mint(), 0);
    assert_eq!(outbox.skip_event(unknown, &looking, true).await.unwrap(), Intervention::NotFound);
    assert_eq!(outbox.held_keys(&all_lanes()).await.unwrap(), before);
    assert_eq!(state_of(&lab, keys[0][0].id).await, EventState::Parked);
    assert_eq!(lab.harness.audits("just looking").await, 0);
}
