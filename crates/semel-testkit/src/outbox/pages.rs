//! Every committed event comes, once, in order, and always the same.

use std::collections::{BTreeMap, BTreeSet};

use semel::Outbox;
use semel::event::MAX_PAYLOAD_BYTES;
use semel::outbox::{Cursor, PageLimit, Written};
use semel::sink::Lane;
use semel::{Event, Reply};
use tokio::sync::watch;

use super::dice::Dice;
use super::harness::Harness;
use super::lab::{Lab, ROOMY, all_lanes, event, number, page, read};
use super::load::{COUNTED, Load, counted};
use crate::counts::rounds;

/// I4, I5: nothing is lost, nothing comes twice, and keys keep their order, while sixteen write and two read.
pub async fn every_committed_event_comes_once_and_in_order_under_load<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let load = Load::start(&lab, rounds(20, 400));
    let other = lab.harness.another().await;
    let one = tokio::spawn(follow(lab.outbox().clone(), load.ended(), 1));
    let two = tokio::spawn(follow(other, load.ended(), 2));
    let committed: BTreeSet<_> = load.committed().await.into_iter().collect();
    let (seen, seen_by_another) = (one.await.unwrap(), two.await.unwrap());
    let ids: BTreeSet<_> = seen.iter().map(|event| event.id).collect();
    assert_eq!(ids.len(), seen.len(), "an event came twice");
    assert_eq!(ids, committed, "what comes is what was committed");
    assert_eq!(seen, seen_by_another, "everybody reads the same");
    assert_ordered(&seen);
    assert_eq!(lab.everything().await, seen, "and later, too");
}

/// The counters of the load come in the order in which they were counted, and within any key the seq rises.
fn assert_ordered(seen: &[Written]) {
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    for written in seen {
        if let Some(before) = last.insert(&written.event.ordering_key, written.cursor.seq) {
            assert!(before < written.cursor.seq, "an event overtook another of {}", written.event.ordering_key);
        }
    }
    for key in (0..COUNTED).map(counted) {
        let of_key = seen.iter().filter(|written| written.event.ordering_key == key);
        let counts: Vec<i64> = of_key.map(counted_in).collect();
        assert_eq!(counts, (1..).take(counts.len()).collect::<Vec<i64>>(), "{key}");
        assert!(!counts.is_empty(), "{key} was counted");
    }
}

fn counted_in(written: &Written) -> i64 {
    let (n, _padding): (i64, String) = serde_json::from_slice(&written.event.payload).unwrap();
    n
}

/// Reads until the load has ended and nothing is left, by pages of all sizes.
async fn follow<O: Outbox>(outbox: O, ended: watch::Receiver<bool>, seed: u64) -> Vec<Written> {
    let (mut dice, mut seen, mut after, lanes) = (Dice::new(seed), Vec::new(), Cursor::START, all_lanes());
    loop {
        let over = *ended.borrow();
        match page(&outbox, after, &lanes, any_limit(&mut dice)).await {
            Some(page) => {
                after = page.upto;
                seen.extend(page.events);
            }
            None if over => return seen,
            None => tokio::task::yield_now().await,
        }
    }
}

/// By number of events, by bytes, or hardly at all.
fn any_limit(dice: &mut Dice) -> PageLimit {
    let events = u32::try_from(1 + dice.below(40)).unwrap();
    match dice.below(3) {
        0 => PageLimit { events, bytes: ROOMY.bytes },
        1 => PageLimit { events: ROOMY.events, bytes: 1 + dice.below(20_000) },
        _ => PageLimit { events, bytes: 1 + dice.below(60_000) },
    }
}

/// I5: from wherever one starts again, by whatever pages, what follows is the same.
pub async fn reading_again_from_any_cursor_gives_the_same<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let load = Load::start(&lab, rounds(6, 60));
    let seen = follow(lab.outbox().clone(), load.ended(), 3).await;
    load.committed().await;
    let (mut dice, lanes) = (Dice::new(4), all_lanes());
    let mut cursors = vec![(Cursor::START, 0)];
    for _ in 0..rounds(12, 100) {
        let at = dice.pick(seen.len());
        cursors.push((seen[at].cursor, at + 1));
    }
    let mut after = Cursor::START;
    while let Some(page) = page(lab.outbox(), after, &lanes, any_limit(&mut dice)).await {
        after = page.upto;
        cursors.push((after, seen.iter().filter(|event| event.cursor <= after).count()));
    }
    // Reading to the end from every one of many cursors grows with the square of the load.
    while cursors.len() > 30 {
        cursors.swap_remove(dice.pick(cursors.len()));
    }
    let another = lab.harness.another().await;
    for (after, passed) in cursors {
        let limit = PageLimit { events: 200, ..any_limit(&mut dice) };
        assert_eq!(read(&another, after, &lanes, limit).await, seen[passed..], "after {after:?}");
    }
}

/// Whoever has some lanes reads those, all of them, in the same order.
pub async fn lanes_that_were_not_asked_for_do_not_come<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let load = Load::start(&lab, rounds(4, 40));
    load.committed().await;
    let everything = lab.everything().await;
    let used: BTreeSet<Lane> = everything.iter().map(|event| event.lane).collect();
    let used: Vec<Lane> = used.into_iter().collect();
    let unused: Vec<Lane> = Lane::all().filter(|lane| !used.contains(lane)).collect();
    for lanes in [&used[..1], &used[1..], &used[..used.len() / 2], &unused[..]] {
        let expected: Vec<Written> = everything.iter().filter(|event| lanes.contains(&event.lane)).cloned().collect();
        for limit in [ROOMY, PageLimit { events: 3, bytes: ROOMY.bytes }] {
            assert_eq!(read(lab.outbox(), Cursor::START, lanes, limit).await, expected);
        }
    }
    assert!(everything.len() > 10 && !unused.is_empty());
}

/// Asking costs nothing when there is nothing.
pub async fn nothing_new_is_none_until_there_is_something<H: Harness>() {
    let (lab, lanes) = (Lab::<H>::open().await, all_lanes());
    let outbox = lab.outbox();
    let mut after = Cursor::START;
    for n in 1..=3 {
        for _ in 0..2 {
            assert_eq!(page(outbox, after, &lanes, ROOMY).await, None);
        }
        // Work that emits nothing is nothing new.
        lab.answer(&semel::Key::random(), Reply::new(201, "done").unwrap(), &[]).await.unwrap();
        assert_eq!(page(outbox, after, &lanes, ROOMY).await, None);
        lab.emit([event("topic", "key", n)]).await;
        let mut numbers = Vec::new();
        while let Some(page) = page(outbox, after, &lanes, ROOMY).await {
            after = page.upto;
            numbers.extend(page.events.iter().map(number));
        }
        assert_eq!(numbers, [n]);
    }
}

/// A page is never so small that nothing goes on.
pub async fn an_event_larger_than_a_page_still_comes<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let payloads = [10, MAX_PAYLOAD_BYTES, 0, MAX_PAYLOAD_BYTES, 10, 10];
    let events = payloads.map(|bytes| Event::bytes("topic", "key", "type", "text/plain", vec![b'x'; bytes]).unwrap());
    let ids = lab.emit(events).await;
    for bytes in [0, 1, 10, 20, 1_000, MAX_PAYLOAD_BYTES as u64] {
        let limit = PageLimit { events: 100, bytes };
        let seen = read(lab.outbox(), Cursor::START, &all_lanes(), limit).await;
        assert_eq!(seen.iter().map(|event| event.id).collect::<Vec<_>>(), ids, "pages of {bytes} bytes");
    }
}

/// I5: who takes a lane over passes the head first, and then nothing lies before it that somebody may have published.
pub async fn the_head_is_where_reading_ends<H: Harness>() {
    let (lab, mut after) = (Lab::<H>::open().await, Cursor::START);
    assert_eq!(lab.outbox().head().await.unwrap(), after, "there is nothing to read");
    for n in 0..3 {
        lab.emit([event("topic", "one", n), event("topic", "two", n), event("topic", "three", n)]).await;
        let limit = PageLimit { events: 2, ..ROOMY };
        while let Some(page) = page(lab.outbox(), after, &all_lanes(), limit).await {
            after = page.upto;
            assert!(after <= lab.outbox().head().await.unwrap(), "{after:?} was read");
        }
        assert!(after >= lab.outbox().head().await.unwrap(), "there is nothing more to read after {after:?}");
    }
}
