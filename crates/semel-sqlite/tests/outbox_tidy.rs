//! What is deleted, in what portions, and what can be told of it afterwards.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{File, all_events, event};
use semel::operator::Audit;
use semel::outbox::{Cursor, HeldEvent, HeldKey, HeldState, Holding, LANES, LaneState, RelayId, Written};
use semel::sink::Lane;
use semel::{Error, Event, EventId, Outbox, Tx as _};
use semel_sqlite::Sqlite;
use semel_testkit::counts::rounds;

const HOUR: Duration = Duration::from_secs(60 * 60);

async fn emit(store: &Sqlite, events: impl IntoIterator<Item = Event>) {
    let mut tx = store.begin().await.unwrap();
    events.into_iter().for_each(|event| tx.emit(event));
    tx.commit().await.unwrap();
}

async fn relay(store: &Sqlite) -> (RelayId, Vec<LaneState>) {
    let id = store.join_relays("relay", HOUR * 1000).await.unwrap().id;
    (id, store.take_lanes(id, LANES).await.unwrap())
}

/// Counts these and moves their lanes past them. Returns the number that each got.
fn pass(lanes: &mut [LaneState], events: &[Written]) -> Vec<(EventId, u64)> {
    let mut numbers = Vec::new();
    for written in events {
        let state = lanes.iter_mut().find(|state| state.lane == written.lane).unwrap();
        assert!(state.cursor < written.cursor);
        state.cursor = written.cursor;
        let count = state.counts.entry(written.event.topic.clone()).or_default();
        *count += 1;
        numbers.push((written.id, *count));
    }
    numbers
}

#[tokio::test]
async fn a_turn_deletes_a_bounded_number_of_events() {
    let file = File::create().await;
    let store = file.open().await;
    for _ in 0..5 {
        emit(&store, (0..500).map(|n| event(&format!("key-{n}")))).await;
    }
    let (id, mut lanes) = relay(&store).await;
    let events = all_events(&store).await;
    pass(&mut lanes, &events[..2300]);
    store.checkpoint(id, &lanes).await.unwrap();
    assert_eq!(store.tidy_outbox(HOUR).await.unwrap().emptied, 0, "all are young");
    let before = store.commits();
    assert_eq!(store.tidy_outbox(HOUR).await.unwrap().emptied, 0);
    assert_eq!(store.commits(), before, "looking takes no turn");
    file.clock.advance(HOUR * 2);
    assert_eq!(store.tidy_outbox(HOUR).await.unwrap().emptied, 2300);
    assert_eq!(store.commits() - before, 3, "a thousand at a time");
    assert_eq!(all_events(&store).await, events[2300..]);
    assert_eq!(store.tidy_outbox(HOUR).await.unwrap().emptied, 0);
}

#[tokio::test]
async fn a_turn_deletes_a_bounded_number_of_bytes() {
    let file = File::create().await;
    let store = file.open().await;
    let large = || Event::bytes("topic", "key", "type", "text/plain", vec![7; 1024 * 1024]).unwrap();
    emit(&store, (0..20).map(|_| large())).await;
    let (id, mut lanes) = relay(&store).await;
    pass(&mut lanes, &all_events(&store).await);
    store.checkpoint(id, &lanes).await.unwrap();
    let before = store.commits();
    assert_eq!(store.tidy_outbox(Duration::ZERO).await.unwrap().emptied, 20);
    assert_eq!(store.commits() - before, 3, "eight at a time");
}

#[tokio::test]
async fn what_waits_is_counted_wherever_lanes_stand() {
    let file = File::create().await;
    let store = file.open().await;
    for _ in 0..3 {
        emit(&store, (0..1000).map(|n| event(&format!("key-{n}")))).await;
    }
    let (id, mut lanes) = relay(&store).await;
    let (behind, passed): (Vec<Written>, Vec<Written>) =
        all_events(&store).await.into_iter().partition(|event| event.lane == Lane(7) && event.cursor.seq > 1500);
    assert!(behind.len() > 10);
    pass(&mut lanes, &passed);
    store.checkpoint(id, &lanes).await.unwrap();
    for keep in [HOUR, Duration::ZERO] {
        // Tidying notes how far all lanes have come, and that is not far enough to miss one that is behind.
        store.tidy_outbox(keep).await.unwrap();
        let backlog = store.backlog().await.unwrap();
        assert_eq!((backlog.events, backlog.oldest_ms), (behind.len() as u64, Some(behind[0].time_ms)));
    }
    assert_eq!(all_events(&store).await, behind);
    pass(&mut lanes, &behind);
    store.checkpoint(id, &lanes).await.unwrap();
    store.tidy_outbox(HOUR).await.unwrap();
    assert_eq!(store.backlog().await.unwrap().events, 0);
    emit(&store, [event("key")]).await;
    assert_eq!(store.backlog().await.unwrap().events, 1);
}

#[tokio::test]
async fn an_event_from_the_future_is_as_old_as_what_follows_it() {
    let file = File::create().await;
    let store = file.open().await;
    emit(&store, (0..3).map(|_| event("key"))).await;
    let far = "UPDATE semel_events SET emitted_at = emitted_at + 1000000000000 WHERE seq <> 2";
    file.connection().execute(far, ()).unwrap();
    let (id, mut lanes) = relay(&store).await;
    pass(&mut lanes, &all_events(&store).await);
    store.checkpoint(id, &lanes).await.unwrap();
    assert_eq!(store.tidy_outbox(Duration::ZERO).await.unwrap().emptied, 2, "of the last nothing is known");
}

#[tokio::test]
async fn a_seq_is_never_drawn_twice() {
    let file = File::create().await;
    let store = file.open().await;
    emit(&store, [event("key"), event("key")]).await;
    let (id, mut lanes) = relay(&store).await;
    let events = all_events(&store).await;
    pass(&mut lanes, &events);
    store.checkpoint(id, &lanes).await.unwrap();
    assert_eq!(store.tidy_outbox(Duration::ZERO).await.unwrap().emptied, 2);
    emit(&store, [event("key")]).await;
    assert!(all_events(&store).await[0].cursor > events[1].cursor);
}

#[tokio::test]
async fn a_young_event_keeps_the_older_ones_behind_it() {
    let file = File::create().await;
    let store = file.open().await;
    emit(&store, (0..3).map(|_| event("key"))).await;
    // As if the clock had gone back after the second.
    file.connection().execute("UPDATE semel_events SET emitted_at = emitted_at + 7200000 WHERE seq = 2", ()).unwrap();
    let (id, mut lanes) = relay(&store).await;
    pass(&mut lanes, &all_events(&store).await);
    store.checkpoint(id, &lanes).await.unwrap();
    file.clock.advance(HOUR * 2);
    assert_eq!(store.tidy_outbox(HOUR).await.unwrap().emptied, 1);
    assert_eq!(store.tidy_outbox(HOUR).await.unwrap().emptied, 0, "what is left must be in one piece");
    file.clock.advance(HOUR * 2);
    assert_eq!(store.tidy_outbox(HOUR).await.unwrap().emptied, 2);
}

#[tokio::test]
async fn a_lane_does_not_go_back_to_what_is_deleted() {
    let file = File::create().await;
    let store = file.open().await;
    emit(&store, [event("key"), event("key"), event("key")]).await;
    let (id, mut lanes) = relay(&store).await;
    let events = all_events(&store).await;
    pass(&mut lanes, &events[..1]);
    let overtaken = lanes.clone();
    pass(&mut lanes, &events[1..2]);
    store.checkpoint(id, &lanes).await.unwrap();
    assert_eq!(store.tidy_outbox(Duration::ZERO).await.unwrap().emptied, 2);
    store.checkpoint(id, &overtaken).await.unwrap();
    store.leave_relays(id).await.unwrap();
    assert_eq!(relay(&store).await.1, lanes);
}

#[tokio::test]
async fn a_position_past_the_last_event_is_refused() {
    let file = File::create().await;
    let store = file.open().await;
    emit(&store, [event("key")]).await;
    let (id, mut lanes) = relay(&store).await;
    pass(&mut lanes, &all_events(&store).await);
    let right = lanes.clone();
    lanes.iter_mut().for_each(|state| state.cursor = Cursor { tick: 1, seq: 2 });
    let refused = store.checkpoint(id, &lanes).await;
    assert!(matches!(&refused, Err(Error::Settings(why)) if why.contains("semel outbox rebase")), "{refused:?}");
    store.checkpoint(id, &right).await.unwrap();
}

/// A generator of numbers (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn pick(&mut self, many: usize) -> usize {
        usize::try_from(self.below(many as u64)).unwrap()
    }
}

/// Whatever is emitted, published, renumbered and deleted in whatever order: what is left keeps its numbers, and what
/// is not published is left.
#[tokio::test]
async fn the_history_of_what_is_left_gives_the_numbers_it_had() {
    for seed in 0..u64::from(rounds(6, 100)) {
        let file = File::create().await;
        let store = file.open().await;
        let (id, mut lanes) = relay(&store).await;
        let (mut dice, mut numbers, mut clock) = (Dice(seed), BTreeMap::new(), 0);
        let mut unpublished: Vec<Written> = Vec::new();
        for _ in 0..60 {
            match dice.below(5) {
                0 | 1 => {
                    let events: Vec<Event> = (0..dice.below(20))
                        .map(|_| {
                            let topic = format!("topic-{}", dice.below(2));
                            Event::new(topic, format!("key-{}", dice.below(6)), "type", &1).unwrap()
                        })
                        .collect();
                    emit(&store, events).await;
                    unpublished = all_events(&store).await;
                    unpublished.retain(|event| lanes.iter().any(|l| l.lane == event.lane && l.cursor < event.cursor));
                }
                2 if !unpublished.is_empty() => {
                    let many = 1 + dice.pick(unpublished.len());
                    let passed: Vec<Written> = unpublished.drain(..many).collect();
                    numbers.extend(pass(&mut lanes, &passed));
                    store.checkpoint(id, &lanes).await.unwrap();
                }
                3 => renumber(&store, id, &mut lanes, &mut dice).await,
                _ => {
                    clock += 1;
                    file.clock.advance(Duration::from_secs(10));
                    store.tidy_outbox(Duration::from_secs(10 * dice.below(4))).await.unwrap();
                }
            }
            check(&store, &numbers, &unpublished, seed).await;
        }
        assert!(clock > 0 && !numbers.is_empty());
    }
}

/// Holds an event that is there, and takes a new number for it out of its lane's counts.
async fn renumber(store: &Sqlite, id: RelayId, lanes: &mut [LaneState], dice: &mut Dice) {
    let lane = Lane::of(&format!("key-{}", dice.below(6)));
    let state = lanes.iter_mut().find(|state| state.lane == lane).unwrap();
    let events = all_events(store).await;
    let Some(written) = events.into_iter().find(|e| e.lane == lane && e.cursor <= state.cursor) else { return };
    let ordering_key = written.event.ordering_key.clone();
    let key = HeldKey {
        lane,
        ordering_key: ordering_key.clone(),
        state: HeldState::Retrying,
        attempts: 1,
        retry_at_ms: 0,
        error: "é".repeat(1000),
        since_ms: 0,
        events: 0,
    };
    let seq = written.cursor.seq;
    let count = state.counts.entry(written.event.topic.clone()).or_default();
    *count += 1;
    let sequences = vec![(seq, *count)];
    let hold = Holding::Hold { key: Some(key), events: vec![HeldEvent { written, sequence: 1 }] };
    let renumber = Holding::Renumber { ordering_key: ordering_key.clone(), sequences: sequences.clone() };
    let release = Holding::Release { ordering_key, upto_seq: seq };
    store.hold(id, state, &[hold, renumber, release]).await.unwrap();
}

async fn check(store: &Sqlite, numbers: &BTreeMap<EventId, u64>, unpublished: &[Written], seed: u64) {
    let events = all_events(store).await;
    let histories = store.history().await.unwrap();
    let mut states: Vec<LaneState> = histories.iter().map(|history| history.from.clone()).collect();
    for written in &events {
        let at = histories.iter().position(|history| history.from.lane == written.lane).unwrap();
        let (history, state) = (&histories[at], &mut states[at]);
        let before = history.renumbered.iter().filter(|r| r.cursor >= state.cursor && r.cursor < written.cursor);
        if let Some(renumbered) = before.last() {
            state.counts = renumbered.counts.clone();
        }
        let number = pass(std::slice::from_mut(state), std::slice::from_ref(written))[0].1;
        if let Some(first) = numbers.get(&written.id) {
            assert_eq!(number, *first, "seed {seed}: {written:?}");
            assert!(written.cursor <= history.upto);
        } else {
            assert!(written.cursor > history.upto);
        }
    }
    let left = |event: &Written| events.iter().any(|there| there.id == event.id);
    assert!(unpublished.iter().all(left), "seed {seed}: what is not published stays");
    assert_eq!(store.backlog().await.unwrap().events, unpublished.len() as u64);
}

#[tokio::test]
async fn a_rebased_copy_counts_from_one_and_tells_nothing_of_the_incarnation_before() {
    let file = File::create().await;
    let store = file.open().await;
    emit(&store, (0..6).map(|_| event("key"))).await;
    let (id, mut lanes) = relay(&store).await;
    let events = all_events(&store).await;
    pass(&mut lanes, &events[..4]);
    store.checkpoint(id, &lanes).await.unwrap();
    let before = store.outbox_status().await.unwrap();
    let audit = Audit { actor: "ada".to_owned(), reason: "restored".to_owned() };
    assert!(matches!(store.rebase(&audit, false).await, Err(Error::Settings(_))), "a lease runs");
    store.leave_relays(id).await.unwrap();

    let rebased = store.rebase(&audit, false).await.unwrap();
    assert_eq!((rebased.from.as_ref(), rebased.events), (Some(&before.incarnation), 2));
    assert_ne!(rebased.to, before.incarnation);
    assert_eq!(store.outbox_status().await.unwrap().incarnation, rebased.to);
    assert_eq!(all_events(&store).await, events[4..], "what was published is over");
    let (id, mut lanes) = relay(&store).await;
    assert_eq!(pass(&mut lanes, &events[4..]), [(events[4].id, 1), (events[5].id, 2)]);
    store.checkpoint(id, &lanes).await.unwrap();
    check(&store, &BTreeMap::from([(events[4].id, 1), (events[5].id, 2)]), &[], 0).await;
    emit(&store, [event("key")]).await;
    assert_eq!(store.tidy_outbox(Duration::ZERO).await.unwrap().emptied, 6);
    let left = all_events(&store).await;
    assert_eq!(pass(&mut lanes, &left), [(left[0].id, 3)]);
    let history = &store.history().await.unwrap()[0];
    assert_eq!(history.from.counts, BTreeMap::from([("topic".to_owned(), 2)]));
}
