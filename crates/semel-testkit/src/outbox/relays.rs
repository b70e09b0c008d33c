//! Who relays which lanes, from where, and who does not any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use semel::outbox::{Counts, Cursor, Holding, LANES, LaneState, Page, PageLimit, RelayId};
use semel::sink::Lane;
use semel::{Error, Outbox};

use super::dice::Dice;
use super::harness::Harness;
use super::lab::{LONG, Lab, ROOMY, all_lanes, distinct, event, held_key, keys_of, numbered, page, past, read};
use super::lab::{sorted, until, within};
use super::load::Load;
use super::numbering::Numbering;
use crate::counts::rounds;

/// A lane has one relay at a time.
pub async fn a_relay_takes_free_lanes_and_nobody_elses<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let (one, two, three) = (lab.join("one").await, lab.join("two").await, lab.join("three").await);
    assert!(one < two && two < three, "a later membership is a greater token");
    assert_eq!(outbox.renew_relay(one, LONG).await.unwrap(), 3);
    let mut taken = outbox.take_lanes(one, 10).await.unwrap();
    assert_eq!(taken.len(), 10);
    assert_eq!(outbox.take_lanes(one, 0).await.unwrap(), []);
    taken.extend(outbox.take_lanes(two, 20).await.unwrap());
    assert_eq!(taken.len(), 30);
    taken.extend(outbox.take_lanes(three, LANES).await.unwrap());
    assert_eq!(sorted(taken).iter().map(|state| state.lane).collect::<Vec<_>>(), all_lanes());
    for relay in [one, two, three] {
        assert_eq!(outbox.take_lanes(relay, LANES).await.unwrap(), []);
    }
}

/// However they race, for lanes that were left and for lanes whose relays did not come back.
pub async fn relays_that_race_share_no_lane<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let others = [lab.outbox().clone(), lab.harness.another().await];
    for round in 0..rounds(6, 60) {
        let taken = Arc::new(AtomicUsize::new(0));
        let mut racers = tokio::task::JoinSet::new();
        for racer in 0..6 {
            let (outbox, taken) = (others[racer % 2].clone(), taken.clone());
            racers.spawn(async move {
                let id = outbox.join_relays("racer", LONG).await.unwrap().id;
                let mut lanes = Vec::new();
                let race = async {
                    while taken.load(Ordering::SeqCst) < usize::from(LANES) {
                        let more = outbox.take_lanes(id, 1 + 3 * u16::try_from(racer).unwrap()).await.unwrap();
                        taken.fetch_add(more.len(), Ordering::SeqCst);
                        lanes.extend(more);
                    }
                };
                within("all lanes are taken", race).await;
                (id, lanes)
            });
        }
        let raced = racers.join_all().await;
        assert!(distinct(raced.iter().map(|(id, _)| *id)));
        let lanes = sorted(raced.iter().flat_map(|(_, lanes)| lanes.clone()).collect());
        assert_eq!(lanes.iter().map(|state| state.lane).collect::<Vec<_>>(), all_lanes());
        for (id, _) in raced {
            if round % 2 == 0 {
                lab.outbox().renew_relay(id, Duration::from_millis(1)).await.unwrap();
            } else {
                lab.outbox().leave_relays(id).await.unwrap();
            }
        }
    }
}

/// A hand-over in good order: stored and free in one commit.
pub async fn a_relay_that_gives_lanes_up_hands_over_where_they_stand<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let cursors = lab.cursors(2).await;
    let (one, lanes) = lab.relay("one").await;
    let two = lab.join("two").await;
    assert_eq!(outbox.renew_relay(one, LONG).await.unwrap(), 2);
    assert_eq!(outbox.take_lanes(two, LANES / 2).await.unwrap(), [], "a lane in use is not to be had");
    let given: Vec<LaneState> = lanes.iter().step_by(2).map(|state| at(state, cursors[0])).collect();
    outbox.leave_lanes(one, &given).await.unwrap();
    assert_eq!(sorted(outbox.take_lanes(two, LANES).await.unwrap()), given);
    assert_eq!(outbox.take_lanes(one, LANES).await.unwrap(), []);
    // Both go on with what they have.
    outbox.checkpoint(two, &given).await.unwrap();
    outbox.checkpoint(one, &[at(&lanes[1], cursors[1])]).await.unwrap();
}

/// Whoever leaves is gone, and leaving twice is no error.
pub async fn a_relay_that_leaves_frees_everything<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let cursors = lab.cursors(1).await;
    let (one, lanes) = lab.relay("one").await;
    let states = all_at(&lanes, cursors[0]);
    outbox.checkpoint(one, &states).await.unwrap();
    let two = lab.join("two").await;
    for _ in 0..2 {
        outbox.leave_relays(one).await.unwrap();
        assert_eq!(outbox.renew_relay(two, LONG).await.unwrap(), 1);
    }
    assert!(matches!(outbox.renew_relay(one, LONG).await, Err(Error::Fenced)));
    assert!(matches!(outbox.checkpoint(one, &lanes).await, Err(Error::Fenced)));
    assert_eq!(sorted(outbox.take_lanes(two, LANES).await.unwrap()), states);
}

/// Nobody has to say good-bye.
pub async fn a_lease_that_ran_out_is_taken_over_where_it_stands<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let cursors = lab.cursors(1).await;
    let (one, lanes) = lab.relay("one").await;
    let states = all_at(&lanes, cursors[0]);
    lab.outbox().checkpoint(one, &states).await.unwrap();
    let (two, taken) = lab.take_over(one, "two", usize::from(LANES)).await;
    assert!(two > one, "the token grows");
    assert_eq!(taken, states);
    assert_eq!(lab.outbox().renew_relay(two, LONG).await.unwrap(), 1);
    let (three, taken) = lab.take_over(two, "three", usize::from(LANES)).await;
    assert!(three > two, "the token grows");
    assert_eq!(taken, states);
}

/// The row decides, not the clock: a relay that is late but was not given up goes on.
pub async fn a_lease_that_ran_out_counts_until_it_is_taken_over<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let cursors = lab.cursors(1).await;
    let (one, lanes) = lab.relay("one").await;
    let other = lab.join("other").await;
    outbox.renew_relay(one, Duration::from_millis(1)).await.unwrap();
    until("the lease runs out", async || outbox.renew_relay(other, LONG).await.unwrap() == 1).await;
    let relays = outbox.outbox_status().await.unwrap().relays;
    assert_eq!(relays.iter().filter(|relay| relay.expired).map(|relay| relay.id).collect::<Vec<_>>(), [one.0]);
    outbox.checkpoint(one, &all_at(&lanes, cursors[0])).await.unwrap();
    assert_eq!(outbox.renew_relay(one, LONG).await.unwrap(), 2, "it is back in time");
    assert_eq!(outbox.take_lanes(other, LANES).await.unwrap(), []);
}

/// I7: a relay that was given up for dead can write nothing any more.
pub async fn a_fenced_relay_changes_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let key = &keys_of(Lane(5), 1)[0];
    let written = lab.written(&lab.emit([event("topic", key, 1), event("topic", key, 2)]).await).await;
    let (late, lanes) = lab.relay("late").await;
    let states: Vec<LaneState> = lanes.iter().map(|state| past(state, &written[..1])).collect();
    outbox.checkpoint(late, &states).await.unwrap();
    let (current, taken) = lab.take_over(late, "current", usize::from(LANES)).await;
    assert_eq!(taken, states);

    let further = past(&states[5], &written[1..]);
    fenced(lab.outbox(), late, &further, &written).await;
    outbox.leave_relays(late).await.unwrap();
    assert_eq!(outbox.outbox_status().await.unwrap().free_lanes, 0, "the lanes stay with the current relay");
    assert_eq!(outbox.held_keys(&all_lanes()).await.unwrap(), []);
    outbox.checkpoint(current, &states[..1]).await.unwrap();
    outbox.leave_relays(current).await.unwrap();
    assert_eq!(lab.stored().await, states);
}

async fn fenced(outbox: &impl Outbox, late: RelayId, state: &LaneState, written: &[semel::outbox::Written]) {
    let states = std::slice::from_ref(state);
    let key = Some(held_key(&written[0], semel::outbox::HeldState::Parked));
    let holding = Holding::Hold { key, events: numbered(written, 1) };
    assert!(matches!(outbox.checkpoint(late, states).await, Err(Error::Fenced)));
    assert!(matches!(outbox.hold(late, state, &[holding]).await, Err(Error::Fenced)));
    assert!(matches!(outbox.hold(late, state, &[]).await, Err(Error::Fenced)));
    assert!(matches!(outbox.leave_lanes(late, states).await, Err(Error::Fenced)));
    assert!(matches!(outbox.renew_relay(late, LONG).await, Err(Error::Fenced)));
    assert!(matches!(outbox.take_lanes(late, LANES).await, Err(Error::Fenced)));
}

/// I7: a relay that is alive but gave the lane up cannot write its position either.
pub async fn a_lane_that_was_given_up_is_fenced<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let cursors = lab.cursors(2).await;
    let (one, lanes) = lab.relay("one").await;
    let two = lab.join("two").await;
    let (kept, given) = (&lanes[0], &lanes[1]);
    outbox.leave_lanes(one, std::slice::from_ref(given)).await.unwrap();
    assert_eq!(outbox.take_lanes(two, LANES).await.unwrap(), std::slice::from_ref(given));
    let current = at(given, cursors[0]);
    outbox.checkpoint(two, std::slice::from_ref(&current)).await.unwrap();

    let late = [at(kept, cursors[1]), at(given, cursors[1])];
    assert!(matches!(outbox.checkpoint(one, &late).await, Err(Error::Fenced)));
    assert!(matches!(outbox.hold(one, &late[1], &[]).await, Err(Error::Fenced)));
    assert!(matches!(outbox.leave_lanes(one, &late[1..]).await, Err(Error::Fenced)));
    outbox.leave_relays(one).await.unwrap();
    outbox.leave_relays(two).await.unwrap();
    assert_eq!(lab.stored().await[..2], [kept.clone(), current]);
}

/// Cursor and counts, to the last one.
pub async fn what_is_checkpointed_is_what_the_next_one_gets<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let outbox = lab.outbox();
    let key = &keys_of(Lane(9), 1)[0];
    let written = lab.written(&lab.emit((1..=5).map(|n| event("topic", key, n))).await).await;
    let (one, lanes) = lab.relay("one").await;
    assert!(lanes.iter().all(|state| state.counts.is_empty() && state.cursor < written[0].cursor));
    for upto in 1..=2 {
        outbox.checkpoint(one, &[past(&lanes[9], &written[..upto])]).await.unwrap();
    }
    let mut counts = Counts::from([("\"quoted\" \\ {é}".to_owned(), 1), ("t".repeat(255), 1 << 53)]);
    counts.extend((0..200).map(|n| (format!("topic-{n}"), n + 1)));
    let odd = LaneState { counts, cursor: written[4].cursor, ..lanes[10].clone() };
    outbox.checkpoint(one, std::slice::from_ref(&odd)).await.unwrap();
    outbox.leave_relays(one).await.unwrap();

    let other = lab.harness.another().await;
    let two = other.join_relays("two", LONG).await.unwrap().id;
    let taken = sorted(other.take_lanes(two, LANES).await.unwrap());
    assert_eq!(taken[9], past(&lanes[9], &written[..2]));
    assert_eq!(taken[10], odd);
    assert_eq!(taken[..9], lanes[..9]);
    assert_eq!(read(&other, taken[9].cursor, &[Lane(9)], ROOMY).await, written[2..], "the rest of the same commit");
}

/// Whoever numbers an event, and however often, finds the same number: the one that consumers rely on.
pub async fn sequences_are_stable_over_takeovers_under_load<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let load = Load::start(&lab, rounds(8, 150));
    let (ended, mut dice) = (load.ended(), Dice::new(11));
    let mut sequences = BTreeMap::new();
    let (mut relay, mut lanes) = lab.relay("relay").await;
    let (mut takeovers, mut repeated) = (0, 0);
    'relaying: loop {
        let mut numbering = Numbering::from_states(lanes);
        for _ in 0..2 + dice.below(10) {
            let over = *ended.borrow();
            let limit = PageLimit { events: 1 + u32::try_from(dice.below(30)).unwrap(), bytes: ROOMY.bytes };
            let Some(page) = page(lab.outbox(), numbering.after(), &numbering.lanes(), limit).await else {
                if over && takeovers > 5 {
                    break 'relaying;
                }
                break;
            };
            for held in numbering.pass(&cut(page, &mut dice)) {
                let named = (held.written.lane, held.written.event.topic.clone(), held.sequence);
                if let Some(before) = sequences.insert(held.written.id, named.clone()) {
                    repeated += 1;
                    assert_eq!(before, named, "{} got another number", held.written.id);
                }
            }
            // Some lanes are stored more often than others, so that they come to stand at different cursors.
            let some = numbering.states().into_iter().filter(|state| u64::from(state.lane.0) % 3 >= dice.below(4));
            lab.outbox().checkpoint(relay, &some.collect::<Vec<_>>()).await.unwrap();
        }
        (relay, lanes) = lab.take_over(relay, "relay", usize::from(LANES)).await;
        takeovers += 1;
    }
    let committed = load.committed().await;
    assert!(repeated > 0, "what was not stored is read again");
    assert_eq!(sequences.len(), committed.len());
    assert!(committed.iter().all(|id| sequences.contains_key(id)));
    let mut dense: BTreeMap<(Lane, &str), Vec<u64>> = BTreeMap::new();
    for (lane, topic, sequence) in sequences.values() {
        dense.entry((*lane, topic)).or_default().push(*sequence);
    }
    for (of, mut numbers) in dense {
        numbers.sort_unstable();
        assert_eq!(numbers, (1..).take(numbers.len()).collect::<Vec<u64>>(), "{of:?}");
    }
}

/// Sometimes the first part of a page only, as a relay has it that stores its position in between.
fn cut(mut page: Page, dice: &mut Dice) -> Page {
    if !page.events.is_empty() && dice.below(2) == 0 {
        page.events.truncate(1 + dice.pick(page.events.len()));
        page.upto = page.events.last().map_or(page.upto, |event| event.cursor);
    }
    page
}

/// The lanes, at this cursor, with counts of their own.
fn all_at(lanes: &[LaneState], cursor: Cursor) -> Vec<LaneState> {
    lanes.iter().map(|state| at(state, cursor)).collect()
}

fn at(state: &LaneState, cursor: Cursor) -> LaneState {
    let count = cursor.seq.unsigned_abs() + u64::from(state.lane.0);
    LaneState { lane: state.lane, cursor, counts: Counts::from([("topic".to_owned(), count)]) }
}
