//! What goes, what stays, and what can be told again.

use std::collections::BTreeMap;
use std::time::Duration;

use semel::outbox::{EventState, HeldState, Holding, Intervention, LANES, PageLimit, RelayId, Written};
use semel::sink::Lane;
use semel::{EventId, Outbox};

use super::harness::Harness;
use super::lab::{Lab, ROOMY, audit, event, held_key, keys_of, number, page, past, read, until};
use super::numbering::Numbering;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// How often a store must have been tidied before a test believes that nothing goes.
const ROUNDS: i64 = 6;

/// A relay with all lanes that publishes to nowhere.
struct Publisher<H: Harness> {
    lab: Lab<H>,
    id: RelayId,
    numbering: Numbering,
    /// The first number that each event got.
    sequences: BTreeMap<EventId, u64>,
}

impl<H: Harness> Publisher<H> {
    async fn start() -> Publisher<H> {
        let lab = Lab::<H>::open().await;
        let (id, lanes) = lab.relay("relay").await;
        Publisher { lab, id, numbering: Numbering::from_states(lanes), sequences: BTreeMap::new() }
    }

    /// Publishes everything there is, and stores the positions.
    async fn publish(&mut self) {
        let lanes = self.numbering.lanes();
        while let Some(page) = page(self.lab.outbox(), self.numbering.after(), &lanes, ROOMY).await {
            for held in self.numbering.pass(&page) {
                self.sequences.insert(held.written.id, held.sequence);
            }
        }
        self.lab.outbox().checkpoint(self.id, &self.numbering.states()).await.unwrap();
    }

    /// Emits and publishes one more, to a lane that no test looks at, and tidies.
    async fn turn(&mut self, keep: Duration) {
        self.lab.emit([event("turning", "turning", 0)]).await;
        self.publish().await;
        self.lab.outbox().tidy_outbox(keep).await.unwrap();
    }

    async fn state(&self, id: EventId) -> Option<EventState> {
        self.lab.outbox().show_event(id).await.unwrap().map(|record| record.state)
    }

    /// Turns until this event is gone.
    async fn turn_until_gone(&mut self, id: EventId) {
        let publisher = tokio::sync::Mutex::new(self);
        until("what is published and old goes", async || {
            let mut publisher = publisher.lock().await;
            publisher.turn(Duration::ZERO).await;
            publisher.state(id).await.is_none()
        })
        .await;
    }
}

/// The outbox does not grow without end.
pub async fn what_is_published_and_old_goes<H: Harness>() {
    let mut publisher = Publisher::<H>::start().await;
    let keys: Vec<String> = (0..20).map(|n| format!("key-{n}")).collect();
    let ids = publisher.lab.emit(keys.iter().map(|key| event("topic", key, 1))).await;
    publisher.publish().await;
    assert_eq!(publisher.state(ids[0]).await, Some(EventState::Published));
    for id in ids {
        publisher.turn_until_gone(id).await;
    }
    // What is emitted after that comes as ever.
    let ids = publisher.lab.emit(keys.iter().map(|key| event("topic", key, 2))).await;
    publisher.publish().await;
    assert_eq!(ids.iter().map(|id| publisher.sequences[id]).collect::<Vec<_>>(), expected_second(&keys));
}

/// What each gets that comes second of its key, all keys having had one: one lane may have several keys.
fn expected_second(keys: &[String]) -> Vec<u64> {
    let in_lane = |lane: Lane, keys: &[String]| keys.iter().filter(|key| Lane::of(key) == lane).count() as u64;
    (0..keys.len())
        .map(|at| in_lane(Lane::of(&keys[at]), keys) + in_lane(Lane::of(&keys[at]), &keys[..at]) + 1)
        .collect()
}

/// I4: never, whatever the window.
pub async fn what_is_not_published_never_goes<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let lane = Lane(20);
    let keys = keys_of(lane, 2);
    let mut ids = lab.emit((1..=3).map(|n| event("topic", &keys[0], n))).await;
    for _ in 0..ROUNDS {
        outbox.tidy_outbox(Duration::ZERO).await.unwrap();
    }
    let (id, lanes) = lab.relay("relay").await;
    let others: Vec<_> = lanes.iter().filter(|state| state.lane != lane).cloned().collect();
    let mut numbering = Numbering::from_states(others);
    let first = lab.written(&ids[..1]).await;
    outbox.checkpoint(id, &[past(&lanes[usize::from(lane.0)], &first)]).await.unwrap();
    for n in 0..ROUNDS {
        ids.extend(lab.emit([event("topic", &keys[1], n)]).await);
        lab.emit([event("topic", "turning", n)]).await;
        while let Some(page) = page(outbox, numbering.after(), &numbering.lanes(), ROOMY).await {
            numbering.pass(&page);
        }
        outbox.checkpoint(id, &numbering.states()).await.unwrap();
        outbox.tidy_outbox(Duration::ZERO).await.unwrap();
    }
    let left: Vec<Written> = read(outbox, first[0].cursor, &[lane], ROOMY).await;
    assert_eq!(left.iter().map(|event| event.id).collect::<Vec<_>>(), ids[1..]);
    assert_eq!(left.iter().map(number).collect::<Vec<_>>(), [2, 3, 0, 1, 2, 3, 4, 5]);
    assert_eq!(outbox.backlog().await.unwrap().events, left.len() as u64);
}

/// What may have to be told again is kept.
pub async fn what_is_within_the_window_stays<H: Harness>() {
    let mut publisher = Publisher::<H>::start().await;
    let ids = publisher.lab.emit([event("topic", "key", 1)]).await;
    for _ in 0..ROUNDS {
        publisher.turn(HOUR).await;
    }
    assert_eq!(publisher.state(ids[0]).await, Some(EventState::Published));
    assert_eq!(publisher.lab.everything().await.len(), 1 + usize::try_from(ROUNDS).unwrap());
}

/// However long nobody relays, and whatever goes meanwhile.
pub async fn positions_and_counts_survive_tidying<H: Harness>() {
    let mut publisher = Publisher::<H>::start().await;
    let ids = publisher.lab.emit((0..50).map(|n| event("topic", &format!("key-{n}"), n))).await;
    publisher.publish().await;
    publisher.turn_until_gone(ids[0]).await;
    let states = publisher.numbering.states();
    let lab = publisher.lab;
    lab.outbox().leave_relays(publisher.id).await.unwrap();
    for n in 0..ROUNDS {
        lab.emit([event("topic", "unpublished", n)]).await;
        lab.outbox().tidy_outbox(Duration::ZERO).await.unwrap();
    }
    assert_eq!(lab.stored().await, states);
    let (id, lanes) = lab.relay("next").await;
    for _ in 0..ROUNDS {
        // A relay that stands still stores the same again and again.
        lab.outbox().checkpoint(id, &lanes).await.unwrap();
        lab.outbox().tidy_outbox(Duration::ZERO).await.unwrap();
    }
    let (_, taken) = lab.take_over(id, "last", usize::from(LANES)).await;
    assert_eq!(taken, states);
}

/// I4: a parked event outlives the slot it was written to.
pub async fn held_events_survive_tidying<H: Harness>() {
    let mut publisher = Publisher::<H>::start().await;
    let lane = Lane(21);
    let keys = keys_of(lane, 2);
    let ids = publisher.lab.emit([event("topic", &keys[0], 1), event("topic", &keys[1], 2)]).await;
    let written = publisher.lab.written(&ids).await;
    publisher.publish().await;
    let state = publisher.numbering.states()[usize::from(lane.0)].clone();
    let head = written.iter().find(|event| event.id == ids[0]).unwrap().clone();
    let held = publisher.lab.hold(publisher.id, &state, std::slice::from_ref(&head)).await;
    publisher.turn_until_gone(ids[1]).await;
    let outbox = publisher.lab.outbox();
    assert_eq!(outbox.held_events(lane, &keys[0], 10).await.unwrap(), held);
    let record = outbox.show_event(ids[0]).await.unwrap().unwrap();
    assert_eq!((record.state, record.written), (EventState::Retrying, head));
}

/// A replay gives every event the number it had, over restarts, new numbers for held events, and tidying.
pub async fn history_and_pages_give_the_sequences_again<H: Harness>() {
    let mut publisher = Publisher::<H>::start().await;
    let lane = Lane(22);
    let keys = keys_of(lane, 2);
    let spread: Vec<String> = (0..10).map(|n| format!("spread-{n}")).collect();
    let some = |n: i64| {
        let of_lane = keys.iter().map(move |key| event(["topic", "other"][usize::from(n % 2 == 0)], key, n));
        of_lane.chain(spread.iter().map(move |key| event("topic", key, n))).collect::<Vec<_>>()
    };
    let first = publisher.lab.emit(some(1)).await;
    for n in 2..5 {
        publisher.turn(HOUR).await;
        publisher.lab.emit(some(n)).await;
    }
    publisher.publish().await;
    assert_retold(&publisher).await;

    // Two events of a key are held and parked, and get new numbers out of the lane's counts.
    let outbox = publisher.lab.outbox().clone();
    let everything = publisher.lab.everything().await;
    let of_key = |event: &&Written| event.event.ordering_key == keys[0] && event.event.topic == "topic";
    let held: Vec<Written> = everything.iter().filter(of_key).cloned().collect();
    let mut states = publisher.numbering.states();
    let state = &mut states[usize::from(lane.0)];
    publisher.lab.hold(publisher.id, state, &held).await;
    let parked = Holding::Update(held_key(&held[0], HeldState::Parked));
    outbox.hold(publisher.id, state, &[parked]).await.unwrap();
    outbox.redrive(Some(&keys[0]), &audit("mended"), false).await.unwrap();
    let counted = state.counts["topic"];
    let sequences: Vec<(i64, u64)> = held.iter().map(|event| event.cursor.seq).zip(counted + 1..).collect();
    state.counts.insert("topic".to_owned(), counted + sequences.len() as u64);
    let renumber = Holding::Renumber { ordering_key: keys[0].clone(), sequences: sequences.clone() };
    outbox.hold(publisher.id, state, &[renumber]).await.unwrap();
    publisher.numbering = Numbering::from_states(states);
    for n in 5..7 {
        publisher.lab.emit(some(n)).await;
        publisher.turn(HOUR).await;
    }
    let without = publisher.sequences.len() - held.len();
    assert_eq!(assert_retold(&publisher).await, without, "what is held is not told");

    // One of them goes through and the other is skipped.
    let state = publisher.numbering.states()[usize::from(lane.0)].clone();
    let release = Holding::Release { ordering_key: keys[0].clone(), upto_seq: held[0].cursor.seq };
    let park = Holding::Update(held_key(&held[1], HeldState::Parked));
    outbox.hold(publisher.id, &state, &[release, park]).await.unwrap();
    publisher.sequences.insert(held[0].id, sequences[0].1);
    assert_eq!(outbox.skip_event(held[1].id, &audit("useless"), false).await.unwrap(), Intervention::Done(1));
    publisher.sequences.remove(&held[1].id);
    publisher.lab.emit(some(7)).await;
    publisher.turn(HOUR).await;
    assert_eq!(assert_retold(&publisher).await, publisher.sequences.len());

    publisher.turn_until_gone(first[0]).await;
    publisher.lab.emit(some(8)).await;
    publisher.publish().await;
    assert!(assert_retold(&publisher).await < publisher.sequences.len(), "some are gone");
}

/// Goes over all that is kept, and says how much that is.
async fn assert_retold<H: Harness>(publisher: &Publisher<H>) -> usize {
    let outbox = publisher.lab.outbox();
    let mut again = Numbering::from_history(outbox.history().await.unwrap());
    let (mut retold, lanes) = (0, again.lanes());
    while let Some(page) = page(outbox, again.after(), &lanes, PageLimit { events: 7, ..ROOMY }).await {
        for held in again.pass(&page) {
            let id = held.written.id;
            assert_eq!(publisher.sequences.get(&id), Some(&held.sequence), "{:?} is told otherwise", held.written);
            retold += 1;
        }
    }
    let ahead = publisher.numbering.states();
    let counts = |lane| ahead.iter().find(|state| state.lane == lane).map(|state| state.counts.clone());
    for state in again.states() {
        assert_eq!(Some(state.counts), counts(state.lane), "in the end the lane has counted the same");
    }
    assert!(retold > 0, "something is kept");
    retold
}
