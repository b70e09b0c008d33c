//! Places among Semel's own events: everything up to a mark, and what was applied above it.

use std::collections::BTreeSet;
use std::ops::Range;

use semel::Error;
use semel::consume::Fate;
use semel::inbox::{MAX_RANGES, Sequence};

use super::harness::Harness;
use super::lab::{Lab, contiguous, fates, ranges_of, refused};
use super::message::{Deed, Message, id, lane, placed, sequence};
use super::shuffle::{Chance, shuffled};

/// I6, with its control: who remembers only the highest sequence takes the retry for a duplicate, and loses it.
pub async fn a_message_that_is_retried_while_its_successors_apply_is_neither_lost_nor_applied_twice<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (mut highest, mut by_maximum) = (0, Vec::new());
    let script = [(1, true), (2, false), (3, true), (4, true), (2, false), (5, true), (2, true), (4, true), (2, true)];
    for (n, succeeds) in script {
        let deed = if succeeds { Deed::Apply } else { Deed::Fail };
        assert_eq!(lab.deliver(&sequence(n).that(deed)).await.is_ok(), succeeds);
        if n > highest && succeeds {
            highest = n;
            by_maximum.push(n);
        }
    }
    assert_eq!(by_maximum, [1, 3, 4, 5], "the control loses the message that was retried");
    lab.applied_once(&[1, 2, 3, 4, 5].map(sequence)).await;
    assert_eq!(stored(&lab).await, contiguous(5));
}

/// I6: one by one, shuffled, each several times, some failing first.
pub async fn sequences_in_any_order_apply_each_once_and_end_as_one_range<H: Harness>() {
    let (lab, mut all) = (Lab::<H>::open().await, Vec::new());
    for seed in 0..crate::counts::rounds(3, 30) {
        let (lane, mut tried, mut applied) = (lane_of(seed), BTreeSet::new(), BTreeSet::new());
        let message = |n| placed(Sequence { sequence: n, ..lane.clone() });
        for (step, n) in (0..).zip(arrivals(40, seed)) {
            // Every fourth fails when it comes for the first time.
            let fails = tried.insert(n) && n % 4 == 0;
            let deed = if fails { Deed::Fail } else { Deed::Apply };
            assert_eq!(lab.deliver(&message(n).that(deed)).await.is_err(), fails);
            if !fails {
                applied.insert(n);
            }
            if step % 16 == 0 {
                let stored = lab.harness.ranges(&lab.consumer, &lane).await;
                assert_eq!(stored, ranges_of(&applied), "after {step} of seed {seed}");
            }
        }
        for n in 1..=40 {
            lab.deliver(&message(n)).await.unwrap();
            all.push(message(n));
        }
        assert_eq!(lab.harness.ranges(&lab.consumer, &lane).await, contiguous(40), "seed {seed}");
    }
    lab.applied_once(&all).await;
}

/// I6: the same in batches of any size.
pub async fn batches_of_sequences_in_any_order_apply_each_once_and_end_as_one_range<H: Harness>() {
    let (lab, mut all) = (Lab::<H>::open().await, Vec::new());
    for seed in 0..crate::counts::rounds(3, 30) {
        let (lane, mut chance, mut applied) = (lane_of(seed), Chance::new(seed.into()), BTreeSet::new());
        let message = |n| placed(Sequence { sequence: n, ..lane.clone() });
        let mut arriving = arrivals(150, seed);
        while !arriving.is_empty() {
            let rest = arriving.split_off((1 + chance.below(40)).min(arriving.len()));
            let batch = std::mem::replace(&mut arriving, rest);
            let messages: Vec<Message> = batch.iter().map(|n| message(*n)).collect();
            let wanted: Vec<&str> =
                batch.iter().map(|n| if applied.insert(*n) { "applied" } else { "duplicate" }).collect();
            assert_eq!(fates(&lab.deliver_all(&messages).await), wanted, "{batch:?} of seed {seed}");
            let stored = lab.harness.ranges(&lab.consumer, &lane).await;
            assert_eq!(stored, ranges_of(&applied), "after {batch:?} of seed {seed}");
        }
        assert_eq!(lab.harness.ranges(&lab.consumer, &lane).await, contiguous(150), "seed {seed}");
        all.extend((1..=150).map(|n| message(n).label));
    }
    let mut labels = lab.applied().await;
    labels.sort();
    all.sort();
    assert_eq!(labels, all);
}

/// I12: the space for a lane is bounded, and what does not fit is told and not lost.
pub async fn too_many_holes_are_refused_until_one_closes<H: Harness>() {
    let (lab, last) = full::<H>().await;
    let beyond = sequence(last + 2);
    for _ in 0..2 {
        ahead(&refused(lab.deliver(&beyond).await));
    }
    assert_eq!(lab.applied().await, Vec::<String>::new());
    lab.is_known(&sequence(last)).await;
    // Neither of these opens a hole.
    lab.applies(&sequence(1)).await;
    lab.applies(&sequence(last + 1)).await;
    ahead(&refused(lab.deliver(&sequence(last + 3)).await));
    lab.applies(&sequence(3)).await;
    lab.applies(&sequence(last + 3)).await;
    lab.is_known(&sequence(last + 3)).await;
    ahead(&refused(lab.deliver(&sequence(last + 5)).await));
    assert_eq!(stored(&lab).await.len(), MAX_RANGES);
    // Another lane has holes of its own.
    let elsewhere = placed(Sequence { lane: 18, sequence: 1_000, ..lane() });
    lab.applies(&elsewhere).await;
    lab.applied_once(&[sequence(1), sequence(last + 1), sequence(3), sequence(last + 3), elsewhere]).await;
}

/// I12: a lane that is full does not hold up the rest of a batch, and what closes a hole makes room for what opens one.
pub async fn a_message_of_a_batch_that_would_open_too_many_holes_is_refused_alone<H: Harness>() {
    let (lab, last) = full::<H>().await;
    let elsewhere = placed(Sequence { lane: 18, sequence: 7, ..lane() });
    let batch = [id("a"), sequence(last + 3), elsewhere.clone(), sequence(last + 1), sequence(last + 5)];
    let mut told = lab.deliver_all(&batch).await;
    assert_eq!(fates(&told), ["applied", "refused", "applied", "applied", "refused"]);
    for fate in [told.remove(4), told.remove(1)] {
        let Fate::Refused(error) = fate else { panic!("{fate:?} is no refusal") };
        ahead(&error);
    }
    lab.applied_once(&[id("a"), elsewhere.clone(), sequence(last + 1)]).await;
    assert_eq!(stored(&lab).await.len(), MAX_RANGES);
    let batch = [sequence(3), sequence(last + 3)];
    assert_eq!(fates(&lab.deliver_all(&batch).await), ["applied", "applied"]);
    lab.applied_once(&[[id("a"), elsewhere, sequence(last + 1)].as_slice(), &batch].concat()).await;
}

/// A consumer may begin in the middle of a lane, and a lane may become long.
pub async fn sequences_begin_anywhere_and_reach_to_the_end<H: Harness>() {
    let (lab, end) = (Lab::<H>::open().await, i64::MAX.unsigned_abs());
    let messages = [sequence(1_000_000), sequence(end - 1), sequence(1), sequence(end - 2)];
    for message in &messages {
        lab.applies(message).await;
        lab.is_known(message).await;
    }
    lab.applied_once(&messages).await;
    assert_eq!(stored(&lab).await, [1..2, 1_000_000..1_000_001, end - 2..end]);
}

/// A lab whose lane has as many ranges as it may, none of which begins at one, and the last of its sequences.
pub(super) async fn full<H: Harness>() -> (Lab<H>, u64) {
    let lab = Lab::<H>::open().await;
    let last = 2 * MAX_RANGES as u64;
    let messages: Vec<Message> = (1..=last / 2).map(|n| sequence(2 * n).that(Deed::Nothing)).collect();
    assert!(fates(&lab.deliver_all(&messages).await).iter().all(|fate| *fate == "applied"));
    assert_eq!(stored(&lab).await.len(), MAX_RANGES);
    (lab, last)
}

/// The error names the lane and the limit.
pub(super) fn ahead(error: &Error) {
    let Error::Ahead { topic, lane: number, limit } = error else { panic!("the lane is full: {error:?}") };
    assert_eq!((topic, *number, *limit), (&lane().topic, lane().lane, MAX_RANGES));
}

async fn stored<H: Harness>(lab: &Lab<H>) -> Vec<Range<u64>> {
    lab.harness.ranges(&lab.consumer, &lane()).await
}

/// A lane for each seed.
fn lane_of(seed: u32) -> Sequence {
    Sequence { lane: u16::try_from(seed).unwrap(), ..lane() }
}

/// Each sequence up to the last, one to three times, in any order.
fn arrivals(last: u64, seed: u32) -> Vec<u64> {
    let mut chance = Chance::new(u64::from(seed) ^ 0xA5A5);
    let repeated = (1..=last).flat_map(|n| std::iter::repeat_n(n, 1 + chance.below(3))).collect();
    shuffled(repeated, seed.into())
}
