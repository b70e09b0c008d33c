//! A key whose first event was refused.

use semel::outbox::{HeldKey, HeldState, Holding, LANES, LaneState, RelayId, Written};
use semel::sink::Lane;
use semel::{Error, Outbox};

use super::harness::Harness;
use super::lab::{Lab, all_lanes, audit, event, held_key, keys_of, numbered, past};

const LANE: Lane = Lane(7);

/// A relay with all lanes, and `events` written events of each of three keys of one lane.
struct Scene<H: Harness> {
    lab: Lab<H>,
    relay: RelayId,
    state: LaneState,
    keys: [Vec<Written>; 3],
}

async fn scene<H: Harness>(events: i64) -> Scene<H> {
    let lab = Lab::<H>::open().await;
    let mut keys = Vec::new();
    for key in keys_of(LANE, 3) {
        keys.push(lab.written(&lab.emit((0..events).map(|n| event("topic", &key, n))).await).await);
    }
    let (relay, lanes) = lab.relay("relay").await;
    let state = past(&lanes[usize::from(LANE.0)], &keys.concat());
    Scene { lab, relay, state, keys: keys.try_into().unwrap() }
}

impl<H: Harness> Scene<H> {
    async fn row(&self, of: &[Written]) -> Option<HeldKey> {
        let keys = self.lab.outbox().held_keys(&[LANE]).await.unwrap();
        keys.into_iter().find(|key| key.ordering_key == of[0].event.ordering_key)
    }

    async fn sequences(&self, of: &[Written]) -> Vec<(i64, u64)> {
        let held = self.lab.outbox().held_events(LANE, &of[0].event.ordering_key, 100).await.unwrap();
        held.iter().map(|held| (held.written.cursor.seq, held.sequence)).collect()
    }

    async fn apply(&self, holding: Holding) {
        self.lab.outbox().hold(self.relay, &self.state, &[holding]).await.unwrap();
    }

    async fn now_ms(&self) -> i64 {
        self.lab.outbox().backlog().await.unwrap().now_ms
    }
}

/// I4: what cannot go out yet is kept, in order, where everybody sees it.
pub async fn a_held_key_keeps_its_events_with_their_sequences<H: Harness>() {
    let scene = scene::<H>(3).await;
    let (outbox, written) = (scene.lab.outbox(), &scene.keys[0]);
    let key = written[0].event.ordering_key.as_str();
    let held = scene.lab.hold(scene.relay, &scene.state, written).await;
    let row = scene.row(written).await.unwrap();
    assert!((row.since_ms - scene.now_ms().await).abs() < 60_000, "{} is not now", row.since_ms);
    let expected = HeldKey { since_ms: row.since_ms, events: 3, ..held_key(&written[0], HeldState::Retrying) };
    assert_eq!(row, expected);
    assert_eq!(outbox.held_keys(&[Lane(6), Lane(8)]).await.unwrap(), []);
    assert_eq!(outbox.held_keys(&all_lanes()).await.unwrap(), std::slice::from_ref(&expected));
    assert_eq!(outbox.held_events(LANE, key, 100).await.unwrap(), held);
    assert_eq!(outbox.held_events(LANE, key, 2).await.unwrap(), held[..2]);
    assert_eq!(outbox.held_events(LANE, "another", 100).await.unwrap(), []);

    // The next relay finds all of it.
    let (_, lanes) = scene.lab.take_over(scene.relay, "next", usize::from(LANES)).await;
    assert_eq!(lanes[usize::from(LANE.0)], scene.state);
    let other = scene.lab.harness.another().await;
    assert_eq!(other.held_keys(&[LANE]).await.unwrap(), [expected]);
    assert_eq!(other.held_events(LANE, key, 100).await.unwrap(), held);
}

/// A relay that repeats itself after a crash doubles nothing and renumbers nothing.
pub async fn events_that_are_held_already_stay_as_they_are<H: Harness>() {
    let scene = scene::<H>(4).await;
    let written = &scene.keys[0];
    scene.lab.hold(scene.relay, &scene.state, &written[..2]).await;
    let seqs: Vec<i64> = written.iter().map(|event| event.cursor.seq).collect();
    assert_eq!(scene.sequences(written).await, [(seqs[0], 1), (seqs[1], 2)]);

    let anew = HeldKey { attempts: 9, error: "again".to_owned(), ..held_key(&written[0], HeldState::Retrying) };
    scene.apply(Holding::Hold { key: Some(anew), events: numbered(&written[..3], 10) }).await;
    assert_eq!(scene.sequences(written).await, [(seqs[0], 1), (seqs[1], 2), (seqs[2], 12)]);
    let row = scene.row(written).await.unwrap();
    assert_eq!((row.attempts, row.error.as_str(), row.events), (9, "again", 3));

    scene.apply(Holding::Hold { key: None, events: numbered(&written[2..], 20) }).await;
    assert_eq!(scene.sequences(written).await, [(seqs[0], 1), (seqs[1], 2), (seqs[2], 12), (seqs[3], 21)]);
    assert_eq!(scene.row(written).await.unwrap(), HeldKey { events: 4, ..row });
}

/// Attempts are counted until somebody is needed.
pub async fn another_attempt_writes_the_keys_row_and_no_event<H: Harness>() {
    let scene = scene::<H>(2).await;
    let written = &scene.keys[0];
    scene.lab.hold(scene.relay, &scene.state, written).await;
    let (before, sequences) = (scene.row(written).await.unwrap(), scene.sequences(written).await);
    for (state, attempts) in [(HeldState::Retrying, 4), (HeldState::Parked, 10)] {
        let retry_at_ms = before.retry_at_ms + i64::from(attempts);
        let row = HeldKey { state, attempts, retry_at_ms, error: "still refused".to_owned(), ..before.clone() };
        scene.apply(Holding::Update(row.clone())).await;
        assert_eq!(scene.row(written).await.unwrap(), row, "held since {}", before.since_ms);
        assert_eq!(scene.sequences(written).await, sequences);
    }
}

/// What went through goes; the key is free when all has.
pub async fn a_released_key_is_free_when_nothing_is_left<H: Harness>() {
    let scene = scene::<H>(4).await;
    let (written, other) = (&scene.keys[0], &scene.keys[1]);
    let key = written[0].event.ordering_key.clone();
    scene.lab.hold(scene.relay, &scene.state, written).await;
    scene.lab.hold(scene.relay, &scene.state, other).await;
    let untouched = (scene.row(other).await, scene.sequences(other).await);
    let sequences = scene.sequences(written).await;

    scene.apply(Holding::Release { ordering_key: key.clone(), upto_seq: written[1].cursor.seq }).await;
    assert_eq!(scene.sequences(written).await, sequences[2..]);
    let row = scene.row(written).await.unwrap();
    assert_eq!((row.state, row.attempts, row.events), (HeldState::Retrying, 0, 2));
    assert!(row.retry_at_ms <= scene.now_ms().await, "it is to be tried at once");

    scene.apply(Holding::Release { ordering_key: key.clone(), upto_seq: written[3].cursor.seq }).await;
    assert_eq!((scene.row(written).await, scene.sequences(written).await), (None, vec![]));
    assert_eq!((scene.row(other).await, scene.sequences(other).await), untouched);
    // Repeated after a crash, it is done already.
    scene.apply(Holding::Release { ordering_key: key, upto_seq: written[3].cursor.seq }).await;
    assert_eq!(scene.row(written).await, None);
    scene.lab.hold(scene.relay, &scene.state, &written[3..]).await;
    assert_eq!(scene.sequences(written).await, [(written[3].cursor.seq, 1)], "it can be held again");
}

/// After a redrive the events go out with new numbers and the ids they had.
pub async fn a_renumbered_key_is_tried_at_once_with_new_sequences<H: Harness>() {
    let scene = scene::<H>(3).await;
    let (outbox, written) = (scene.lab.outbox(), &scene.keys[0]);
    let key = written[0].event.ordering_key.as_str();
    scene.lab.hold(scene.relay, &scene.state, written).await;
    scene.apply(Holding::Update(held_key(&written[0], HeldState::Parked))).await;
    outbox.redrive(Some(key), &audit("mended"), false).await.unwrap();
    assert_eq!(scene.row(written).await.unwrap().state, HeldState::Redriving);

    let sequences: Vec<(i64, u64)> = written.iter().map(|event| event.cursor.seq).zip(101..).collect();
    scene.apply(Holding::Renumber { ordering_key: key.to_owned(), sequences: sequences.clone() }).await;
    assert_eq!(scene.sequences(written).await, sequences);
    let held = outbox.held_events(LANE, key, 100).await.unwrap();
    assert_eq!(held.into_iter().map(|held| held.written).collect::<Vec<_>>(), *written);
    let row = scene.row(written).await.unwrap();
    assert_eq!((row.state, row.attempts, row.events), (HeldState::Retrying, 0, 3));
    assert!(row.retry_at_ms <= scene.now_ms().await, "it is to be tried at once");
}

/// A redrive counts where the lane stands. A position that was on its way meanwhile must not take that back: the
/// sequences would be given out twice.
pub async fn a_late_position_does_not_undo_a_redrive<H: Harness>() {
    let scene = scene::<H>(2).await;
    let outbox = scene.lab.outbox();
    let one = &scene.keys[0];
    scene.lab.hold(scene.relay, &scene.state, one).await;
    let counts = [("topic".to_owned(), 90)].into();
    let counted = LaneState { counts, ..scene.state.clone() };
    let sequences = one.iter().map(|event| event.cursor.seq).zip(89..).collect();
    let renumber = Holding::Renumber { ordering_key: one[0].event.ordering_key.clone(), sequences };
    outbox.hold(scene.relay, &counted, &[renumber]).await.unwrap();
    outbox.checkpoint(scene.relay, std::slice::from_ref(&scene.state)).await.unwrap();
    outbox.leave_lanes(scene.relay, std::slice::from_ref(&scene.state)).await.unwrap();
    outbox.leave_relays(scene.relay).await.unwrap();
    assert_eq!(scene.lab.stored().await[usize::from(LANE.0)], counted);
}

/// I7: all of a lane's step is stored, or nothing is.
pub async fn holdings_and_the_lanes_position_are_one_commit<H: Harness>() {
    let scene = scene::<H>(2).await;
    let outbox = scene.lab.outbox();
    let [one, two, three] = &scene.keys;
    scene.lab.hold(scene.relay, &scene.state, one).await;
    scene.lab.hold(scene.relay, &scene.state, two).await;
    let next = scene.lab.emit([event("topic", &one[0].event.ordering_key, 9)]).await;
    let cursor = scene.lab.written(&next).await[0].cursor;
    let further = LaneState { counts: [("topic".to_owned(), 77)].into(), cursor, ..scene.state.clone() };
    let holdings = [
        Holding::Release { ordering_key: one[0].event.ordering_key.clone(), upto_seq: one[1].cursor.seq },
        Holding::Update(held_key(&two[0], HeldState::Parked)),
        Holding::Hold { key: Some(held_key(&three[0], HeldState::Retrying)), events: numbered(three, 5) },
    ];
    let before = outbox.held_keys(&[LANE]).await.unwrap();
    let stranger = scene.lab.join("stranger").await;
    assert!(matches!(outbox.hold(stranger, &further, &holdings).await, Err(Error::Fenced)));
    assert_eq!(outbox.held_keys(&[LANE]).await.unwrap(), before);

    outbox.hold(scene.relay, &further, &holdings).await.unwrap();
    assert_eq!(scene.row(one).await, None);
    assert_eq!(scene.row(two).await.unwrap().state, HeldState::Parked);
    assert_eq!(scene.sequences(three).await, [(three[0].cursor.seq, 5), (three[1].cursor.seq, 6)]);
    outbox.leave_relays(scene.relay).await.unwrap();
    outbox.leave_relays(stranger).await.unwrap();
    assert_eq!(scene.lab.stored().await[usize::from(LANE.0)], further);
}
